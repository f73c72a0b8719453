"""A page in headless Chromium, driven over DevTools' pipe."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEYS = {"Tab": 9, "Enter": 13, " ": 32}
#: modifier of a key
CONTROL = 2


def chromium() -> str | None:
    """The path of the browser, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Page:
    """A tab: what a reader types, presses and sees.

    Attributes:
        errors: console errors and uncaught exceptions
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = open(reading, "rb"), open(writing, "wb")  # noqa: SIM115
        self._buffer, self._number = b"", 0
        self._session: str | None = None
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the DevTools protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writing.write(json.dumps(message).encode() + b"\0")
        self._writing.flush()
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._reading.fileno(), 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        event, params = message.get("method"), message.get("params", {})
        if event == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["text"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        return message

    def open(self, url: str) -> None:
        """Load a page to its end."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str, seconds: float = 20) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """Type into the element that has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key of `KEYS`."""
        text = {"Enter": "\r", " ": " "}.get(key, "") if not modifiers else ""
        event = {"key": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip

    def set_color_scheme(self, scheme: str) -> None:
        """Prefer "light" or "dark" colors."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path) -> None:
        """Write a picture of the window (PNG)."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """Close the pipe, which ends the browser."""
        self._writing.close()
        self._reading.close()


@contextmanager
def open_browser(folder: Path) -> Iterator[Page]:
    """An empty page; the browser's files are in the folder."""
    browser = chromium()
    assert browser
    commands_read, commands_write = os.pipe()
    events_read, events_write = os.pipe()
    # the browser reads commands from descriptor 3 and writes events to 4
    script = f'exec "$0" "$@" 3<&{commands_read} 4>&{events_write}'
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
               f"--user-data-dir={folder / 'browser'}", "--no-first-run"]  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", script, browser, *options],
        pass_fds=(commands_read, events_write),
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(commands_read)
    os.close(events_write)
    page = None
    try:
        page = Page(events_read, commands_write)
        yield page
    finally:
        if page:
            page.close()
        process.kill()
        process.wait()
