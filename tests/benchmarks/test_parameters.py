"""The counts of parameters are those of DIET's Table 6, and of ELECTRA's own models."""

import json

import pytest
import torch

from benchmarks import parameters


@pytest.mark.slow
def test_diet_s_table_6_comes_out_to_the_last_parameter(shared_data):
    tables = shared_data.parent / "paper_tables.json"
    if not tables.is_file():
        pytest.skip("no paper_tables.json beside the shared data")
    rows = json.loads(tables.read_text())["diet_table6_parameters"]["rows"]
    for paper, ours in zip(rows, parameters.TABLE_6, strict=True):
        assert (paper["english"], paper["multilingual"]) == ours.paper
        for language, size in parameters.VOCABULARIES.items():
            counted = parameters.count(ours.arch, size, **ours.options)
            exact = paper.get(f"exact_{language.lower()}")
            assert counted == exact or (exact is None and "shaw" in ours.arch)
            assert round(counted / 1e6, 1) == paper[language.lower()]


def test_an_electra_has_as_many_parameters_as_google_s():
    # it hides torchaudio, which can't be imported beside a CPU build
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    import transformers

    sizes = {
        "small": {"hidden_size": 256, "embedding_size": 128, "intermediate_size": 1024},
        "base": {"hidden_size": 768, "embedding_size": 768, "intermediate_size": 3072},
    }
    ours = {model.arch: model for model in parameters.TABLES_3_AND_4}
    for size, shape in sizes.items():
        heads = shape["hidden_size"] // 64
        config = transformers.ElectraConfig(**shape, num_attention_heads=heads)
        with torch.device("meta"):
            theirs = transformers.ElectraModel(config)
        model = ours[f"electra_learned_{size}"]
        assert model.vocabulary == config.vocab_size
        counted = parameters.count(model.arch, model.vocabulary, **model.options)
        assert counted == sum(parameter.numel() for parameter in theirs.parameters())
