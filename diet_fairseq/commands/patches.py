"""``diet-fairseq patches``: the attributes of fairseq that the plugin changes, and why."""

from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")


def run(args: Namespace) -> None:
    from ..patches.table import TABLE

    if args.markdown:
        print("| kind | target | replacement | why |\n| --- | --- | --- | --- |")
        form = "| {0} | `{1}` | `{2}` | {3} |"
    else:
        form = "{0:6}  {1}\n    replacement  {2}\n    why          {3}\n"
    for patch in TABLE:
        for kind, why in patch.reasons.items():
            print(form.format(kind, patch.target, patch.replacement, why))
