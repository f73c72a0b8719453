"""``diet-fairseq patches``: the attributes of fairseq that the plugin changes, and why."""

from argparse import ArgumentParser, Namespace

from ..errors import silent_interrupts


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")


def run(args: Namespace) -> None:
    with silent_interrupts():
        from ..patches.table import TABLE

    if args.markdown:
        print("| reason | target | replacement | why |\n| --- | --- | --- | --- |")
        form = "| {0} | `{1}` | `{2}` | {3} |"
    else:
        form = "{0:13}  {1}\n    replacement  {2}\n    why          {3}\n"
    for patch in TABLE:
        for reason, why in patch.reasons.items():
            print(form.format(reason, patch.target, patch.replacement, why))
