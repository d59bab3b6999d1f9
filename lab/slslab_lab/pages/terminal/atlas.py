"""What `slslab atlas` prints: the answers, then who is best from which model size on, then the papers' crossings."""

from rich.console import Group, RenderableType
from rich.text import Text

from slslab.report.terminal.tables import plain_table
from slslab_lab.pages import atlas
from slslab_lab.pages.atlas import Document


def atlas_tables(document: Document) -> RenderableType:
    """Return the atlas, made from its document."""
    parts: list[RenderableType] = []
    for group, title in document["groups"].items():
        parts.append(Text(f"{title[0].upper()}{title[1:]}", "bold"))
        parts += [Text(sentence) for sentence in atlas.answers(document, group)]
        for objective, word in atlas.WORDS.items():
            strips = [(f"{workers}", strip) for workers, strip in atlas.strips(document, group, objective)]
            parts.append(plain_table(("workers", f"{word}, by size of the model"), strips, words=True))
    rows = [
        (f"{each['workers']}", f"{each['source']}: {atlas.FIGURES[each['figure']]}", *atlas.crossing(each))
        for each in document["published"]
    ]
    headings = ("workers", "published in", "as published", "here", "verdict")
    parts.append(plain_table(headings, rows, title="The papers' own crossings", words=True))
    return Group(*parts, Text("\n".join((atlas.job(document), *document["notes"])), "dim"))


def checks(document: Document) -> RenderableType:
    """Return points beside real runs of them."""
    rows = [
        (
            row["point"],
            row["figure"],
            f"{row['run']:.4g}",
            f"≈{row['atlas']:.4g}",
            f"{row['error']:+.1%}",
        )
        for row in document["rows"]
    ]
    headings = ("point", "figure", "real run", "atlas", "error")
    return Group(plain_table(headings, rows), Text("\n".join(document["notes"]), "dim"))
