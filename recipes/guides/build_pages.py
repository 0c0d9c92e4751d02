"""Pages of the documentation site, for mkdocs-gen-files: the repository's own Markdown, and the API.

A page keeps its path, so that links between pages hold; a link to any other file leads to it on GitHub.
"""

import re
import sys
from pathlib import Path

import mkdocs_gen_files

ROOT = Path(__file__).resolve().parents[2]
FILES = "https://github.com/hf-edu/hf_edu_models/blob/main/"
API = ("models", "data", "metrics", "training", "explain", "convert", "hub", "serve", "doctor")
PICTURES = (".png", ".svg")
sys.path.insert(0, str(ROOT))  # the glossary's lines are those of this copy


def main():
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    pages += [*(ROOT / "recipes").rglob("*.md"), *(ROOT / "hf_edu_models").rglob("*.md")]
    for page in pages:
        write(page, pages)
    for picture in (each for kind in PICTURES for each in (ROOT / "recipes").rglob(f"*{kind}")):
        with mkdocs_gen_files.open(picture.relative_to(ROOT).as_posix(), "wb") as file:
            file.write(picture.read_bytes())
    write_glossary()
    for package in API:
        with mkdocs_gen_files.open(f"api/{package}.md", "w") as file:
            print(f"# hf_edu_models.{package}\n", file=file)
            for module in sorted((ROOT / "hf_edu_models" / package).rglob("*.py")):
                if module.stem != "__init__":
                    print(f"::: {'.'.join(module.relative_to(ROOT).with_suffix('').parts)}\n", file=file)


def write_glossary():
    from hf_edu_models.lessons.glossary import glossary_page

    lessons = sorted((ROOT / "recipes" / "lessons").glob("*.ipynb"))
    links = {file.stem.partition("_")[2]: FILES + file.relative_to(ROOT).as_posix() for file in lessons}
    with mkdocs_gen_files.open("glossary.md", "w") as file:
        file.write(glossary_page(links))


def write(page, pages):
    path = page.relative_to(ROOT)

    def follow(match):
        target, anchor = match[1], match[2] or ""
        file = (page.parent / target).resolve()
        if ":" in target or file.suffix in PICTURES:
            return match[0]
        if file == ROOT / "README.md":
            return f"]({'../' * (len(path.parts) - 1)}index.md{anchor})"
        if file in pages:
            return match[0]
        return f"]({FILES}{file.relative_to(ROOT).as_posix()}{anchor})"

    text = re.sub(r"\]\(([^)#]+)(#[^)]*)?\)", follow, page.read_text("utf-8"))
    name = "index.md" if path == Path("README.md") else path.as_posix()
    with mkdocs_gen_files.open(name, "w") as file:
        file.write(text)
    mkdocs_gen_files.set_edit_path(name, path.as_posix())


main()
