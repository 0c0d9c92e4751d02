"""A real browser for tests, driven through the W3C WebDriver protocol with urllib alone."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference to an element
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the network is off
    "--force-device-scale-factor=1",
]
KEYS = {
    "Up": "\ue013",
    "Down": "\ue015",
    "Left": "\ue012",
    "Right": "\ue014",
    "Enter": "\ue007",
    "Tab": "\ue004",
    "Escape": "\ue00c",
}


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def why_not() -> str | None:
    """Why there is no browser to test with, or None if there is one."""
    for names in (("chromedriver",), BROWSERS):
        if not any(shutil.which(name) for name in names):
            return f"no {' or '.join(names)} is installed"
    return None


class Browser:
    """One window without a screen and without a network."""

    def __init__(self, folder: Path, size: tuple[int, int] = (1400, 1000), dark: bool = False):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        # No proxy between us and the driver, whatever the environment says.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.driver = subprocess.Popen(
            [shutil.which("chromedriver"), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self.wait_for_driver()
            self.session = self.start(folder, size, dark)
        except BaseException:
            self.driver.kill()
            raise

    def wait_for_driver(self) -> None:
        for _ in range(200):
            with contextlib.suppress(OSError):
                if self.call("GET", "/status")["ready"]:
                    return
            time.sleep(0.05)
        raise RuntimeError("chromedriver did not start within ten seconds")

    def start(self, folder: Path, size: tuple[int, int], dark: bool) -> str:
        binary = next(
            path for name in ("chromium", "google-chrome", "chromium-browser") if (path := shutil.which(name))
        )
        flags = [*FLAGS, f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}"]
        flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": binary, "args": flags},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        return self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]

    def call(self, method: str, path: str, body: dict | None = None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with self.opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as problem:
            raise RuntimeError(problem.read().decode()) from None

    def ask(self, path: str, body: dict | None = None, method: str = "POST"):
        return self.call(method, f"/session/{self.session}{path}", body)

    def open(self, page: Path) -> None:
        self.ask("/url", {"url": "about:blank"})
        self.requests(), self.console_messages()  # of the browser's own first page
        self.ask("/url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments):
        """What a function body returns in the page."""
        return self.ask("/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector: str) -> dict:
        return self.ask("/element", {"using": "css selector", "value": selector})

    def click(self, selector: str) -> None:
        self.ask(f"/element/{self.find(selector)[ELEMENT]}/click")

    def hover(self, selector: str, x: int = 0, y: int = 0) -> None:
        """Move the mouse to an element's middle, or `x`, `y` pixels beside it."""
        element = self.find(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        move = {"type": "pointerMove", "duration": 0, "origin": element, "x": x, "y": y}
        self.ask("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def drag(self, selector: str, start: float, end: float) -> None:
        """Press a slider's thumb at `start` of its way (0 to 1), move the mouse in small steps to `end`, release it."""
        element = self.find(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        left, width, middle = self.run(
            "const { left, width, top, height } = arguments[0].getBoundingClientRect();"
            "return [left + 8, width - 16, Math.round(top + height / 2)]",  # the thumb is 16 pixels wide
            element,
        )
        places = [left + width * (start + (end - start) * part / 8) for part in range(9)]
        moves = [{"type": "pointerMove", "duration": 20, "x": round(place), "y": middle} for place in places]
        strokes = [moves[0], {"type": "pointerDown", "button": 0}, *moves[1:], {"type": "pointerUp", "button": 0}]
        self.ask("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": strokes}]})

    def press(self, *names: str) -> None:
        """Press keys where the focus is."""
        strokes = [{"type": kind, "value": KEYS.get(name, name)} for name in names for kind in ("keyDown", "keyUp")]
        self.ask("/actions", {"actions": [{"type": "key", "id": "keys", "actions": strokes}]})

    def pixels(self, selector: str) -> str:
        """What is drawn on a canvas."""
        return self.run("return document.querySelector(arguments[0]).toDataURL()", selector)

    def screenshot(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self.ask("/screenshot", method="GET")))
        return path

    def console_messages(self) -> list[str]:
        return [entry["message"] for entry in self.ask("/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Addresses of all requests of the page."""
        events = [json.loads(entry["message"])["message"] for entry in self.ask("/se/log", {"type": "performance"})]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.call("DELETE", f"/session/{self.session}")
        self.driver.terminate()
        self.driver.wait(timeout=20)
