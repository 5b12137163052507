"""A Chromium driven through its DevTools protocol over a pipe: it needs no package and opens no port."""

import base64
import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.processes import LIMIT, started

__all__ = ["CHROMIUM", "Browser", "View"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--no-first-run",
)
_LAUNCH = (  # the protocol is spoken on the file descriptors 3 and 4
    "import os, sys; read, write = (os.dup(int(fd)) for fd in sys.argv[1:3]); "
    "high = [os.dup2(read, 40), os.dup2(write, 41)]; os.dup2(40, 3); os.dup2(41, 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_OWN_PAGES = re.compile(r"^(data:|file:|about:|chrome)")


class Browser:
    """A running Chromium; use it in a ``with`` statement."""

    def __init__(self) -> None:
        """Start the browser with an empty profile."""
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_read, self._write = os.pipe()
        self._read, theirs_write = os.pipe()
        command = [sys.executable, "-c", _LAUNCH, str(theirs_read), str(theirs_write), CHROMIUM, *_FLAGS]
        self._running = started(
            [
                *command,
                f"--user-data-dir={self._folder.name}",
                "about:blank",
            ],  # no page of its own, with frames
            pass_fds=(theirs_read, theirs_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._process = self._running.__enter__()
        os.close(theirs_read)
        os.close(theirs_write)
        self._buffer, self._number, self.events = b"", 0, []

    def __enter__(self):
        """Return the browser."""
        return self

    def __exit__(self, *_):
        """Close it and remove its profile."""
        with contextlib.suppress(Exception):
            self.call("Browser.close")
            self._process.wait(timeout=LIMIT)
        self._running.__exit__(None, None, None)
        for end in (self._read, self._write):
            os.close(end)
        self._folder.cleanup()

    def _next(self):
        until = time.monotonic() + LIMIT
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(until - time.monotonic(), 0))[0]:
                raise TimeoutError(f"the browser said nothing for {LIMIT} s")
            found = os.read(self._read, 1 << 20)
            if not found:
                raise ConnectionError("the browser has ended")
            self._buffer += found
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, **params):
        """The result of a method of the protocol; events that come before it are kept in ``events``."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        """Wait until an event of this name has come."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def open(self, path, width, *, dark=False, media="screen", scripts=True, height=None):
        """Open a page.

        Args:
            path: of the file.
            width: of the window in pixels; under 600 a phone.
            dark: whether the reader's system is dark.
            media: ``"screen"`` or ``"print"``.
            scripts: whether the browser runs scripts.
            height: of the window.
        """
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        phone = width < 600
        size = {"width": width, "height": height or (844 if phone else 900)}
        self.call("Emulation.setDeviceMetricsOverride", session, **size, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, media=media, features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", session, value=not scripts)
        self.call("Page.navigate", session, url=Path(path).resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        return View(self, session, target)


class View:
    """A page that is open."""

    def __init__(self, browser, session, target):
        """Take over a session of the browser."""
        self._browser, self._session, self._target = browser, session, target

    def run(self, script):
        """The value of an expression of JavaScript, awaited."""
        result = self._browser.call(
            "Runtime.evaluate", self._session, expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def press(self, key, code):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            extra = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self._browser.call(
                "Input.dispatchKeyEvent",
                self._session,
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **extra,
            )

    @property
    def console(self):
        """Texts that the page or the browser wrote to its console, errors included."""
        found = []
        for event in self._browser.events:
            if event.get("method") in (
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            ):
                found.append(json.dumps(event["params"])[:500])
        return found

    @property
    def requests(self):
        """Addresses outside of the page itself that it asked for."""
        sent = [event for event in self._browser.events if event.get("method") == "Network.requestWillBeSent"]
        urls = [event["params"]["request"]["url"] for event in sent]
        return [url for url in urls if not _OWN_PAGES.match(url)]

    def picture(self, path, whole=True):
        """Take a picture: of the whole page, or of what the window shows."""
        options = {"captureBeyondViewport": whole, "format": "png"}
        if whole:
            size = self._browser.call("Page.getLayoutMetrics", self._session)["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "scale": 1, "width": size["width"], "height": size["height"]}
        data = self._browser.call("Page.captureScreenshot", self._session, **options)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def printed(self, path):
        """Print to a PDF file on A4 and return the number of its pages."""
        options = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        data = base64.b64decode(self._browser.call("Page.printToPDF", self._session, **options)["data"])
        Path(path).write_bytes(data)
        return len(re.findall(rb"/Type\s*/Page\b", data))

    def close(self):
        """Close the page."""
        self._browser.call("Target.closeTarget", targetId=self._target)
