"""The script that trains: devices and batches, progress, and the continuation of a shorter run."""

import json
import os
import subprocess
import sys

import pytest

from diet_fairseq.errors import UserError
from tests.workflows.conftest import EXAMPLES, script

pytestmark = pytest.mark.slow

sys.path.insert(0, str(EXAMPLES / "scripts"))  # as for a script
train = script("scripts/train")
sys.path.remove(str(EXAMPLES / "scripts"))

SCRIPT = EXAMPLES / "scripts" / "train.py"


@pytest.mark.parametrize("gpus", [0, 1, 4])
@pytest.mark.parametrize(
    ("option", "batch", "capacity"), [("--max-tokens", 20000, 2500), ("--batch-size", 32, 5)]
)
def test_the_batch_is_the_same_on_any_number_of_gpus(gpus, option, batch, capacity):
    words = train.batch_options(option, batch, capacity, gpus)
    size, steps = (int(words[words.index(name) + 1]) for name in (option, "--update-freq"))
    assert max(1, gpus) * size * steps == batch
    assert size <= capacity
    assert ("--cpu" in words) == (gpus == 0)


def test_samples_that_can_t_be_divided_are_refused():
    with pytest.raises(UserError, match="batch must be a multiple of gpus, 3, but is 32"):
        train.batch_options("--batch-size", 32, 5, 3)


#: writes fairseq's log: a part of an update's entry may come later than its beginning
FAKE = """
import os, sys, time
with open(sys.argv[1], "a") as log:
    for line in ("{'_name': None}", '{"loss": "2.0", "wps": "1000.4", "num_updates": "50"}',
                 '{"valid_loss": "3.0", "valid_num_updates": "50"}',
                 '{"loss": "1.0", "wps": "2000", "num_updates": "100"}'):
        print(line, end="", file=log, flush=True)
        time.sleep(0.7)
        print(file=log, flush=True)
if sys.argv[2] == "no checkpoint":
    sys.exit()
open(sys.argv[1].replace("train.log", "checkpoint_last.pt"), "w").close()
if int(sys.argv[2]) < 0:
    os.kill(os.getpid(), -int(sys.argv[2]))
sys.exit(int(sys.argv[2]))
"""


def command(folder, *options, status=0):
    folder.mkdir(exist_ok=True)
    words = [sys.executable, SCRIPT, folder, "--log", folder / "log", "--gpus", 0, "--batch", 100]
    words += ["--capacity", 50, "--updates", 100, *options]
    words += ["--", sys.executable, "-c", FAKE, folder / "train.log", status]
    return [str(word) for word in words]


def run(folder, *options, status=0):
    """Status and stderr of a training, with a line for every entry."""
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command(folder, *options, status=status), capture_output=True, text=True, env=environment
    )
    return done.returncode, done.stderr.splitlines()


def test_the_plan_comes_first_and_the_time_survives_a_resume(tmp_path):
    folder = tmp_path / "diet_rel-s1"
    status, lines = run(folder)
    assert status == 0
    assert lines[0] == (
        "diet_rel-s1: CPU, 1 threads, float32, 50 tokens x 1 x 2 an update, 100 updates"
    )
    assert lines[1] == f"diet_rel-s1: update 0 of 100, log: {folder}/log"
    # the first entry is shown at once, the next after a minute
    assert lines[2] == "diet_rel-s1: update 50 of 100, loss 1.39, words/s 1,000"
    assert len(lines) == 4
    assert lines[-1].endswith("update 100 of 100, held-out loss 2.08, loss 0.69, words/s 2,000")
    first = json.loads((folder / "plan.json").read_text())
    assert first["command"][-5:] == ["--max-tokens", "50", "--update-freq", "2", "--cpu"]
    assert first["seconds"] > 1
    assert 0.001 < first["gigabytes"] < 1  # of Python alone
    (folder / "plan.json").write_text(json.dumps(first | {"gigabytes": 7.0}))
    assert run(folder, status=3)[0] == 3
    assert json.loads((folder / "plan.json").read_text())["seconds"] > 2 * 1
    assert json.loads((folder / "plan.json").read_text())["gigabytes"] == 7.0


def test_a_resumed_training_says_so_and_keeps_its_precision(tmp_path):
    _, lines = run(tmp_path / "mine", "--precision", "bfloat16")
    assert "CPU, 1 threads, bfloat16, " in lines[0]
    (tmp_path / "mine" / "checkpoint_last.pt").touch()
    _, lines = run(tmp_path / "mine", "--precision", "float32")
    assert "CPU, 1 threads, bfloat16, " in lines[0]
    assert lines[1] == f"mine: resumes from its last checkpoint, log: {tmp_path}/mine/log"
    assert json.loads((tmp_path / "mine" / "plan.json").read_text())["command"][-1] == "--bf16"


@pytest.mark.parametrize(
    ("options", "setting", "has_it", "precision"),
    [
        ([], "auto", True, "bfloat16"),
        ([], "auto", False, "float32"),
        ([], "float32", True, "float32"),
        (["--fp16"], "auto", True, "float16"),
        (["--bf16"], "float32", False, "bfloat16"),
    ],
)
def test_the_precision_is_the_options_or_the_machine_s(
    monkeypatch, options, setting, has_it, precision
):
    monkeypatch.setattr(train, "has_bfloat16", lambda gpus: has_it)
    assert train.choose_precision(["fairseq-train", *options], setting, 0) == precision


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("avx512_bf16 sse2", True), ("amx_bf16", True), ("avx512f avx512_vnni", False), (None, False)],
)
def test_a_cpu_with_instructions_for_bfloat16_is_recognised(tmp_path, flags, expected):
    if flags:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: fpu {flags} x\n")
    assert train.has_bfloat16(0, tmp_path / "cpuinfo") == expected


@pytest.mark.parametrize(
    ("capabilities", "expected"), [("8.0 9.0", True), ("9.0 7.5", False), ("", False)]
)
def test_gpus_have_bfloat16_if_all_of_them_do(tmp_path, monkeypatch, capabilities, expected):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\n[ $1 = --query-gpu=compute_cap ] && printf '%s\\n' {capabilities}\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert train.has_bfloat16(2) == expected


def test_the_memory_of_a_gpu_is_what_fairseq_logs(tmp_path):
    log = tmp_path / "train.log"
    progress = train.Progress("mine", log, 100)
    log.write_text(
        "rank   0: capabilities =  9.0  ; total memory = 79.250 GB ; name = NVIDIA H100\n"
        '{"loss": "2", "wps": "9", "num_updates": "50", "gb_free": "70.2"}\n'
        '{"loss": "2", "wps": "9", "num_updates": "99", "gb_free": "72.2"}\n'
    )
    progress.read()
    assert round(progress.peak, 2) == 9.05


#: fairseq's lines about validations of an encoder on novels, which stayed on the plateau
STAYS = """
{"epoch": 1, "valid_loss": "12.88", "valid_ppl": "7539.9", "valid_num_updates": "50"}
{"epoch": 1, "valid_loss": "9.97", "valid_ppl": "1003.15", "valid_num_updates": "100"}
{"epoch": 1, "valid_loss": "9.88", "valid_ppl": "942.28", "valid_num_updates": "200"}
"""
OPTIONS = "scheme:diet_abs|start:local|peak:6.0|sharing:layer|input:none|version:0.4.1"


def warnings_of_plateau(folder, capsys, log, first="▁the 2"):
    """What a training of 400 updates prints, with words that have an entropy of 6.86 nats."""
    words = "".join(f"word{number} 1\n" for number in range(952))
    (folder / "dict.txt").write_text(f"{first}\n{words}")
    output = "2026-11-28 22:50:15 | INFO | diet_fairseq.models.architectures | "
    (folder / "output").write_text(f"{output}scheme:t5|start:blind\n{output}{OPTIONS}\n")
    files = (folder / "train.log", 400, folder / "dict.txt", folder / "output")
    progress = train.Progress("mine", *files)
    (folder / "train.log").write_text(log)
    progress.read()
    return capsys.readouterr().err.splitlines()


def test_a_plateau_is_named_once_after_a_fifth_of_the_updates(tmp_path, capsys):
    assert warnings_of_plateau(tmp_path, capsys, STAYS) == [
        "mine: warning: positions have not been learned: after 100 of 400 updates the held-out "
        "loss must be at least 0.4 nats below the entropy of the words' frequencies, 6.86 nats, "
        "but is 6.91: raise --position-peak above 6, lower the learning rate or lengthen the "
        "warm-up"
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"valid_loss": "9.97"', '"valid_loss": "8.704"'),  # learns, and becomes worse later
        ('"valid_loss": "9.97"', '"valid_loss": "9.97", "valid_mlm_loss": "8.97"'),
        ('"valid_loss": "9.97"', '"valid_loss": "44.2", "valid_generator_loss": "8.97"'),
    ],
)
def test_a_loss_of_masked_words_below_the_entropy_is_no_plateau(tmp_path, capsys, old, new):
    assert not warnings_of_plateau(tmp_path, capsys, STAYS.replace(old, new))


def test_a_dictionary_without_frequencies_gives_no_warning(tmp_path, capsys):
    assert not warnings_of_plateau(tmp_path, capsys, STAYS, first="▁the 1")


@pytest.fixture
def shorter(tmp_path):
    """A run of 100 updates, and the folder of one that shall have 300."""
    for updates in (50, 100, 300):
        folder = tmp_path / f"mine-u{updates}-abc"
        folder.mkdir()
        (folder / "SHA256SUMS").write_text("same")
        if updates < 300:
            for name in ("plan.json", "train.log", "checkpoint_last.pt", "trained"):
                (folder / name).write_text(f"{name} {updates}")
    return tmp_path / "mine-u100-abc", tmp_path / "mine-u300-abc"


def test_a_longer_training_begins_with_the_longest_shorter_one(shorter):
    old, new = shorter
    assert train.continue_shorter_run(new, 200) == (old, "")
    assert (new / "checkpoint_last.pt").read_text() == "checkpoint_last.pt 100"
    assert train.continue_shorter_run(new, 200) == (None, "")  # it has a checkpoint of its own


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        (
            "average",
            "the checkpoints to average begin at update 50, and must be later than update 100; "
            "raise updates further to continue it",
        ),
        ("schedule", "with --lr-scheduler in options the learning rate may depend on updates"),
        ("text", "it was trained on other text"),
        ("unfinished", "its training has not finished"),
    ],
)
def test_a_longer_training_says_why_it_begins_anew(shorter, obstacle, reason):
    old, new = shorter
    for folder in old.parent.glob("*-u[15]*"):
        if obstacle == "text":
            (folder / "SHA256SUMS").write_text("other")
        if obstacle == "unfinished":
            (folder / "trained").unlink()
    first_checkpoint = {"average": 50, "schedule": 0}.get(obstacle, 200)
    expected = f"does not continue mine-u100-abc: {reason}"
    assert train.continue_shorter_run(new, first_checkpoint) == (None, expected)
    assert not (new / "checkpoint_last.pt").exists()


def test_a_training_without_a_shorter_run_gives_no_reason(shorter):
    _, new = shorter
    shortest = new.parent / "mine-u50-abc"
    (shortest / "checkpoint_last.pt").unlink()
    assert train.continue_shorter_run(shortest, 0) == (None, "")
    assert train.continue_shorter_run(new.parent / "encoder-s1-abc", 0) == (None, "")


def test_a_new_start_is_explained_before_the_training(shorter):
    _, new = shorter
    _, lines = run(new, "--first-checkpoint", "50")
    assert lines[1].startswith("mine-u300-abc: does not continue mine-u100-abc: the checkpoints to")
    assert lines[2].startswith("mine-u300-abc: update 0 of 100, log: ")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("no checkpoint", "fairseq-train has ended without an error and without a checkpoint in "),
        (-9, "fairseq-train was ended from outside by SIGKILL: see the log of the scheduler"),
    ],
)
def test_a_training_without_a_result_fails_and_its_log_says_why(tmp_path, status, message):
    code, lines = run(tmp_path / "mine", status=status)
    assert code == 1
    assert lines[-1].startswith(f"error: {message}")
    assert (tmp_path / "mine" / "log").read_text().splitlines()[-1] == lines[-1]


@pytest.mark.parametrize("device", ["", "0"])  # no device, and a device without a driver
def test_a_training_without_its_gpu_is_refused(tmp_path, monkeypatch, device):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    code, lines = run(tmp_path / "mine", "--gpus", 1)
    expected = {
        "": "error: gpus must be at most 0, the number of GPUs of the scheduler's job, but is 1",
        "0": "error: PyTorch must see the GPUs of CUDA_VISIBLE_DEVICES, 0, but sees only 0",
    }[device]
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith(f"{expected}: ")
    assert (tmp_path / "mine" / "log").read_text() == lines[0] + "\n"
    assert not (tmp_path / "mine" / "plan.json").exists()
