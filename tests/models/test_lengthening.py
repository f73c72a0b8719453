"""A model may start from one with fewer positions: its tables go on with their own rows."""

import logging

import pytest
import torch

from diet_fairseq.models import lengthening, warm_start
from tests.support import mutants, tiny
from tests.support.tiny import LIMIT, Case

close = torch.testing.assert_close
LONGER = 2 * LIMIT + 3
LONG = tiny.sentences(LONGER, 3, seed=7)
ONE_OF_EACH_TABLE = [
    case
    for family in ("roberta", "transformer")
    for case in tiny.first_of_each_scheme([c for c in tiny.CASES if c.family == family])
    if case.kind.absolute or case.option("position_input") == "learned"
]
OTHERS = [
    Case("t5", family="roberta").but(position_input="learned"),
    Case("tupe_a", family="bert").but(position_untie_cls="paper"),
    Case("tupe_a").but(position_cross_attention=True),
    Case("diet_abs").but(position_cross_attention=True),
    Case("diet_abs_lin", family="roberta").but(projection_sharing="layer"),
]


def limits(case: Case, positions: int) -> dict[str, int]:
    if case.family == "transformer":
        return {"max_source_positions": positions, "max_target_positions": positions}
    return {"max_positions": positions}


def longer_than(model, case: Case, positions: int = LONGER, **options):
    """A model with more positions that starts from this one."""
    if case.kind.compressed:
        options.setdefault("projection_length", case.option("projection_length") or LIMIT // 4)
    longer = tiny.fresh(case, seed=2, **limits(case, positions), **options)
    with warm_start.checkpoint_loading(longer):
        longer.load_state_dict(model.state_dict())
    return longer


def tables_of(model) -> dict[str, torch.Tensor]:
    return {
        name: model.state_dict()[name]
        for name, _, _ in lengthening.listed_parameters(model, "position_axes")
    }


@torch.no_grad()
def check_lengthening(case: Case) -> None:
    """Within the old length nothing changes; a copy of a table scores as its original does."""
    model = tiny.model_of(case)
    longer = longer_than(model, case)
    for left_source, left_target in tiny.SIDES:
        sides = {"left_source": left_source, "left_target": left_target}
        assert torch.equal(tiny.logits(longer, **sides), tiny.logits(model, **sides))
    tables, period = tables_of(longer), LIMIT - 1
    assert tables
    for name, old in tables_of(model).items():
        new = tables[name]
        axes = [axis for axis in range(old.dim()) if new.size(axis) != old.size(axis)]
        assert axes or "_cross" in name
        for axis in axes:
            end = new.size(axis)
            for back in range(LONGER - LIMIT):  # rows count from the end: tables begin differently
                at = end - 1 - back
                assert torch.equal(new.select(axis, at), new.select(axis, at - period)), name
    assert torch.isfinite(tiny.logits(longer, LONG, tiny.shifted(LONG))).all()


@tiny.each(ONE_OF_EACH_TABLE + OTHERS)
def test_a_longer_model_starts_as_the_shorter_one_and_repeats_its_tables(case):
    check_lengthening(case)


def test_the_log_says_how_far_and_how_tables_are_lengthened(caplog):
    case = Case("tupe_a", family="roberta")
    with caplog.at_level(logging.INFO, "diet_fairseq"):
        longer_than(tiny.model_of(case), case)
    lengths = f"lengthening position tables from {LIMIT} to {LONGER}"
    assert f"{lengths}: rows are repeated from position 1 on" in caplog.text
    assert caplog.text.count("lengthening position tables") == 1


def test_stock_roberta_s_table_is_lengthened_for_another_scheme_too():
    stock = tiny.stock("roberta")
    case = Case("diet_rel", family="roberta").but(position_input="learned")
    longer = longer_than(stock, case)
    table = "encoder.sentence_encoder.embed_positions.weight"
    first = stock.state_dict()[table].size(0)
    assert torch.equal(longer.state_dict()[table][:first], stock.state_dict()[table])
    assert longer.max_positions() == LONGER


def test_a_table_of_one_position_repeats_it():
    case = Case("learned", family="roberta")
    longer = longer_than(tiny.fresh(case, max_positions=1), case, 3)
    rows = tables_of(longer)["encoder.sentence_encoder.embed_positions.weight"]
    assert torch.equal(rows[-1], rows[-2])
    assert torch.equal(rows[-1], rows[-3])


OF_OFFSETS = [
    Case("diet_rel"),
    Case("diet_rel", family="bert"),
    Case("diet_rel").but(position_sharing="layer"),
    Case("shaw").but(position_clip=3, position_values=True),
]


def tables_of_offsets(model) -> dict[str, tuple[torch.Tensor, int]]:
    state = model.state_dict()
    return {
        name: (state[name], axis)
        for name, _, axis in lengthening.listed_parameters(model, "offset_axes")
    }


@torch.no_grad()
def check_offsets(case: Case) -> None:
    """A table of more offsets repeats its outer rows, so that inputs of any length score alike."""
    model = tiny.model_of(case)
    wider = case.but(position_clip=9) if case.scheme == "shaw" else case
    longer = longer_than(model, wider)
    for sentences in (tiny.SOURCES, LONG):
        targets = tiny.shifted(sentences)
        close(tiny.logits(longer, sentences, targets), tiny.logits(model, sentences, targets))
    old = tables_of_offsets(model)
    for name, (table, axis) in tables_of_offsets(longer).items():
        before, _ = old[name]
        added = (table.size(axis) - before.size(axis)) // 2
        assert added > 0
        assert torch.equal(table.narrow(axis, added, before.size(axis)), before), name


@tiny.each(OF_OFFSETS)
def test_a_longer_model_repeats_the_outer_rows_of_offsets(case):
    check_offsets(case)


@torch.no_grad()
@tiny.each(OF_OFFSETS)
def test_a_model_of_fewer_offsets_leaves_out_the_outer_rows(case, caplog):
    narrow = case.but(position_clip=2)
    with caplog.at_level(logging.INFO, "diet_fairseq"):
        shorter = longer_than(tiny.model_of(case), narrow, LIMIT)
    for name, (table, axis) in tables_of_offsets(shorter).items():
        before, _ = tables_of_offsets(tiny.model_of(case))[name]
        assert torch.equal(table, before.narrow(axis, before.size(axis) // 2 - 2, 5)), name
    reach = 3 if case.scheme == "shaw" else LIMIT - 1
    assert f"changing the reach of offset tables from {reach} to 2" in caplog.text


def test_without_the_flag_a_shorter_checkpoint_is_refused():
    for case in (Case("learned", family="roberta"), Case("learned")):
        longer = tiny.fresh(case, **limits(case, LONGER))
        with pytest.raises(RuntimeError, match=r"size mismatch for .*embed_positions\.weight"):
            longer.load_state_dict(tiny.model_of(case).state_dict())


MUTANTS: mutants.Table = [
    (check_lengthening, mutants.tables_that_begin_anew, "diet_abs-roberta"),
    (check_offsets, mutants.offsets_that_begin_anew, "diet_rel"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
