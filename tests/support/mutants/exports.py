"""Faults in exported models; the optional packages are imported by the fault that needs them."""

from tests.support.mutants.catching import Patch

# Hugging Face


def exported_positions_shifted_by_one(patch: Patch) -> None:
    from diet_fairseq.hf.stack import DietPreTrainedModel

    original = DietPreTrainedModel.load_state_dict

    def load(self, state, *args, **kwargs):
        tables = {
            name: tensor.roll(1, 0)
            for name, tensor in state.items()
            if name.endswith(("embed_positions.weight", "positions.weight"))
        }
        return original(self, state | tables, *args, **kwargs)

    patch.setattr(DietPreTrainedModel, "load_state_dict", load)


def exported_gains_forgotten(patch: Patch) -> None:
    from diet_fairseq.hf.convert import configuration

    original = configuration.position_options

    def position_options(*args):
        values = original(*args)
        values["position_options"].pop("position_gain", None)
        return values | {"segment_gain": None}

    patch.setattr(configuration, "position_options", position_options)


def exported_weights_not_tied(patch: Patch) -> None:
    from transformers import PreTrainedModel

    patch.setattr(PreTrainedModel, "tie_weights", lambda *_, **__: None)


# CTranslate2


def converted_positions_shifted_by_one(patch: Patch) -> None:
    from diet_fairseq.export.ctranslate2 import positions

    table, at_input = positions.bias_table, positions.input_table

    def bias_table(*args):
        rows, max_distance = table(*args)
        return rows.roll(1, 0), max_distance

    patch.setattr(positions, "bias_table", bias_table)
    patch.setattr(positions, "input_table", lambda stack: at_input(stack).roll(1, 0))
