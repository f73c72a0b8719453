"""The files of a corpus: where they are found, by split and language."""

from pathlib import Path

from ....errors import UserError

SPLITS = ("train", "valid", "test")
#: the same language in the names of files from elsewhere
ALSO = {"en": "eng", "de": "deu", "cs": "ces"}


def pair_of(source: str, target: str) -> tuple[str, str]:
    """The two languages in the order in which data is kept: the same for both directions."""
    if source == target:
        raise UserError(f"source and target are both {source}: name two languages")
    one, other = sorted((source, target), key=lambda language: (language != "en", language))
    return one, other


def find(folder: Path, pattern: str, language: str) -> dict[str, Path]:
    """The files of one language that match, by their names without language."""
    found: dict[str, Path] = {}
    for code in (language, ALSO.get(language, language)):
        for ending in (f".{code}", f".{code}.gz"):
            for path in sorted(folder.glob(pattern + ending)):
                found.setdefault(str(path.relative_to(folder)).removesuffix(ending), path)
    return found


def find_pairs(
    folder: Path, patterns: dict[str, str], pair: tuple[str, str]
) -> dict[str, list[tuple[Path, Path]]]:
    """split -> its pairs of files, in the order of their names."""
    splits: dict[str, list[tuple[Path, Path]]] = {}
    for split in reversed(SPLITS):  # what tests or validates does not train
        try:
            one, other = (find(folder, patterns[split], language) for language in pair)
        except (NotImplementedError, ValueError) as error:
            raise UserError(
                f"--{split} {patterns[split]} is no pattern of names in {folder} ({error}): give "
                "one such as 'train*', without the folder"
            ) from error
        for name in sorted(one.keys() ^ other.keys()):
            there, lacking = (one[name], pair[1]) if name in one else (other[name], pair[0])
            raise UserError(f"{there} has no partner {folder / name}.{lacking}[.gz]")
        elsewhere = {path for pairs in splits.values() for both in pairs for path in both}
        splits[split] = [
            (one[name], other[name]) for name in sorted(one) if one[name] not in elsewhere
        ]
        if not splits[split]:
            raise UserError(
                f"no file {folder / patterns[split]}.{pair[0]}[.gz]: --{split} names the files "
                f"to {'learn from' if split == 'train' else split + ' with'}"
            )
        if split != "train" and len(splits[split]) > 1:
            raise UserError(
                f"{len(one)} files match --{split} {patterns[split]}, but there must be one: "
                + ", ".join(sorted(one))
            )
    return {split: splits[split] for split in SPLITS}
