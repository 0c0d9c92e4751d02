"""ES modules become one script that runs without a module loader."""

import shutil
import subprocess

import pytest

from hf_edu_models.pages import modules
from hf_edu_models.pages.document import write_document

FILES = {
    "lab/main.js": 'import { add as plus, Counter } from "./parts/add.js";\nimport {\n  one,\n} from "./one.js";\n\n'
    "export const total = plus(one, new Counter().next());\nconsole.log(total);\n",
    "lab/parts/add.js": 'import { one } from "../one.js";\n\nexport function add(a, b) {\n  return a + b;\n}\n'
    "export class Counter {\n  next() {\n    return one + 40;\n  }\n}\nconst hidden = 1;\n",
    "lab/one.js": "const hidden = 1;\nexport const one = hidden;\n",
}


@pytest.fixture
def joined(monkeypatch):
    def join(entry="lab/main.js", **changed):
        files = FILES | {name.replace("__", "/") + ".js": text for name, text in changed.items()}
        monkeypatch.setattr(modules, "package_text", files.__getitem__)
        return modules.join_modules(entry)

    return join


def test_each_module_is_run_once_and_sees_its_own_names(joined):
    script = joined()
    assert script.count("// lab/one.js") == 1
    if shutil.which("node"):
        assert subprocess.run(["node", "-e", script], capture_output=True, text=True).stdout == "42\n"


def test_a_circle_and_other_exports_are_rejected(joined):
    with pytest.raises(ValueError, match=r"circle: lab/main.js -> lab/parts/add.js -> lab/one.js -> lab/main.js"):
        joined(lab__one='import { total } from "./main.js";\nexport const one = 1;\n')
    with pytest.raises(ValueError, match=r"lab/one.js has a line that cannot be joined: export default 1"):
        joined(lab__one="export default 1;\n")


def test_a_script_cannot_end_its_own_element(tmp_path):
    with pytest.raises(ValueError, match="end tag"):
        write_document(tmp_path / "page.html", "{{policy}}{{style}}{{script}}", "", "'</script>'")
