"""Models to translate with: folders of plain words, and real models that are untrained."""

from pathlib import Path

import sentencepiece
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from diet_fairseq.translate.model_json import ModelDescription
from tests.support.checkpoints import write_checkpoint
from tests.support.texts import learn_subwords, sentences


def words_only(folder: Path, **changes: object) -> Path:
    """A folder with a model of plain words, to be loaded as another engine."""
    for name in ("checkpoint_last.pt", "dict.en.txt", "dict.de.txt"):
        (folder / name).touch()
    last = folder / "checkpoint_last.pt"
    known = {"checkpoint": last, "data": folder, **changes}
    ModelDescription("fairseq", "en", "de", folder, **known).write()  # type: ignore[arg-type]
    return folder


def untrained(
    folder: Path, *architecture: str, towards_end: float = 2.5, towards_unknown: float = 0.0
) -> Path:
    """A folder with a checkpoint, dictionaries, SentencePiece's model and ``model.json``.

    Larger numbers than those it starts with make it say different things to different sentences,
    and a bias towards the end makes it come to one. Another bias makes it say <unk>.
    """
    folder.mkdir(exist_ok=True)
    subwords = folder / "sentencepiece.model"
    learn_subwords(subwords, "sentencepiece", sentences(200), 90)
    model = sentencepiece.SentencePieceProcessor(model_file=str(subwords))
    words = Dictionary()
    for number in range(3, model.get_piece_size()):  # the first three are its marks
        words.add_symbol(model.id_to_piece(number), 9)
    for language in ("en", "de"):
        words.save(str(folder / f"dict.{language}.txt"))
    parser = options.get_training_parser()
    sizes = {"layers": 1, "embed-dim": 16, "ffn-embed-dim": 16, "attention-heads": 2}
    small = [f"--{side}-{k}={v}" for side in ("encoder", "decoder") for k, v in sizes.items()]
    words_given = [str(folder), "-s", "en", "-t", "de", *small, "--cpu", *architecture]
    args = options.parse_args_and_arch(parser, input_args=words_given)
    cfg = convert_namespace_to_omegaconf(args)
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(1)
    state = {name: 4 * value for name, value in task.build_model(cfg.model).state_dict().items()}
    state["decoder.layers.0.final_layer_norm.bias"] += 1
    state["decoder.output_projection.weight"][words.eos()] += towards_end
    state["decoder.output_projection.weight"][words.unk()] += towards_unknown
    last = write_checkpoint(folder / "checkpoint_last.pt", args, state)
    ModelDescription(
        "fairseq", "en", "de", folder, last, folder, "sentencepiece", subwords, beam=3
    ).write()
    return folder
