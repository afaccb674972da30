"""The web application: pages, events, actions and login."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from spindle.cli.disks.broker_poll import WAIT_MS
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.blocking.settings import ClientSettings
from spindle.console.actions import (
    ACTIONS,
    Action,
    ActionForm,
    ActionLog,
    LogEntry,
    command_line,
)
from spindle.console.cluster_poll import SnapshotSource
from spindle.console.guard import LOGIN_PATH, Guard
from spindle.console.page import Page, PageNotFound, PageRequest
from spindle.console.page_clients import PageClients
from spindle.console.page_table import PAGES
from spindle.console.rendering import Templates, static_folder
from spindle.console.sessions import ConsoleSessions
from spindle.operations.errors import OperationFailed

_PING_S: Final = 15.0
"""An event at least this often, so that both sides notice a lost connection."""
_MAX_STREAMS: Final = 200
_ACTION_WAIT_MS: Final = 30_000
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings of a console.

    Attributes:
        bootstrap: addresses for the command lines on its pages.
        hosts: names in the Host header that it serves.
        allows_changes: False shows the actions without running them.
    """

    bootstrap: str
    hosts: frozenset[str]
    allows_changes: bool = False
    is_tls: bool = False


class Console:
    """The state of the application.

    Args:
        client_settings: of the clients for what no snapshot has.
    """

    def __init__(
        self,
        source: SnapshotSource,
        client_settings: ClientSettings,
        access: ConsoleSessions,
        settings: ConsoleSettings,
    ) -> None:
        self._source = source
        self._page_clients = PageClients(client_settings, WAIT_MS)
        self._action_clients = PageClients(client_settings, _ACTION_WAIT_MS)
        self._access = access
        self._settings = settings
        self._log = ActionLog()
        self._streams = 0
        menu = [(page.name, page.path, page.title) for page in PAGES if page.is_in_menu]
        self._templates = Templates({"menu": menu, "allows_changes": settings.allows_changes})

    def app(self) -> Starlette:
        """Return the application."""
        routes = [Route(page.path, self._endpoint(page)) for page in PAGES]
        return Starlette(
            routes=[
                *routes,
                Route("/events", self._events),
                Route("/actions/{name}", self._action, methods=["GET", "POST"]),
                Route(LOGIN_PATH, self._login, methods=["GET", "POST"]),
                Route("/logout", self._logout, methods=["POST"]),
                Mount("/static", StaticFiles(directory=static_folder())),
            ],
            middleware=[
                Middleware(
                    Guard,
                    access=self._access,
                    hosts=self._settings.hosts,
                    is_tls=self._settings.is_tls,
                )
            ],
            exception_handlers={404: self._not_found},
        )

    def _endpoint(self, page: Page) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            snapshot = self._source.snapshot
            if snapshot is None:
                return self._render(request, "waiting", {"title": "Waiting"}, 503)
            asked = PageRequest(
                snapshot,
                self._source.history,
                request.path_params,
                dict(request.query_params),
                self._page_clients,
                self._log,
                self._settings.bootstrap,
            )
            try:
                variables = await run_in_threadpool(page.view, asked)
            except PageNotFound as error:
                return self._problem(request, "Not found", str(error), 404)
            except (OperationFailed, *FAILURES) as error:
                return self._problem(request, page.title, _reason(error), 502)
            marked = page.menu or page.name
            shown = {"title": page.title, "marked": marked, **variables}
            return self._render(request, page.name, shown)

        return endpoint

    def _render(
        self, request: Request, name: str, variables: dict[str, Any], status: int = 200
    ) -> Response:
        session = request.state.session
        snapshot = self._source.snapshot
        common = {
            "marked": "",
            "csrf": self._access.csrf_token(session),
            "user": session.user,
            "needs_login": self._access.needs_login,
            "poll_error": self._source.error,
            "time_ms": snapshot.time_ms if snapshot else None,
            "cluster_id": snapshot.status.cluster.cluster_id if snapshot else "",
            "number": self._source.number,
            "address": _own_address(request),
        }
        is_part = bool(request.headers.get("hx-request"))
        text = self._templates.render(name, {**common, **variables}, is_part=is_part)
        # htmx swaps only pages without an error; an open page must show the error, too.
        return HTMLResponse(text, 200 if is_part else status, headers={"Vary": "HX-Request"})

    def _problem(self, request: Request, title: str, text: str, status: int) -> Response:
        return self._render(request, "problem", {"title": title, "text": text}, status)

    def close(self) -> None:
        """Close the connections of pages and actions."""
        self._page_clients.close()
        self._action_clients.close()

    async def _not_found(self, request: Request, error: Exception) -> Response:
        text = f"There is no page {request.url.path}."
        return self._problem(request, "Not found", text, 404)

    # -- events

    async def _events(self, request: Request) -> Response:
        if self._streams >= _MAX_STREAMS:
            return Response("Too many pages are open.", 503)
        return StreamingResponse(
            self._stream(request),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        self._streams += 1
        session = request.state.session
        # A page that was rendered before the stream began names the snapshot that it shows.
        shown = request.query_params.get("after", "")
        number = int(shown) if shown.isascii() and shown.isdigit() else self._source.number
        try:
            while self._access.find(session.session_id) is not None:
                is_new = await self._source.wait_after(number, _PING_S)
                if self._source.is_closed:
                    return
                number = self._source.number
                data = json.dumps({"number": number, "error": self._source.error})
                yield f"event: {'snapshot' if is_new else 'ping'}\ndata: {data}\n\n"
            yield "event: ended\ndata: {}\n\n"
        finally:
            self._streams -= 1

    # -- actions

    async def _action(self, request: Request) -> Response:
        snapshot = self._source.snapshot
        name = request.path_params["name"]
        if snapshot is None or name not in ACTIONS:
            return self._problem(request, "Not found", f"There is no action {name}.", 404)
        is_run = request.method == "POST"
        form = await request.form() if is_run else request.query_params
        fields = {key: value for key, value in form.items() if isinstance(value, str)}
        session = request.state.session
        if is_run and not self._access.is_own_form(session, fields.get("csrf", "")):
            text = "The form is not from this session: open the page again."
            return self._problem(request, "Refused", text, 403)
        try:
            action = ACTIONS[name](ActionForm(snapshot, fields, session.user or ""))
        except (OperationFailed, *FAILURES) as error:
            return self._problem(request, "Not possible", _reason(error), 404)
        if not is_run:
            return self._confirmation(request, action, fields)
        if not self._settings.allows_changes:
            text = "This console changes nothing: start it with --allow-changes."
            return self._problem(request, action.title, text, 403)
        if fields.get("confirmation", "") != action.confirmation:
            text = f"Type {action.confirmation} to confirm."
            return self._confirmation(request, action, fields, text, 400)
        return await self._run(request, action)

    def _confirmation(
        self,
        request: Request,
        action: Action,
        fields: dict[str, str],
        problem: str = "",
        status: int = 200,
    ) -> Response:
        kept = {k: v for k, v in fields.items() if k not in ("csrf", "confirmation", "reason")}
        variables = {
            "title": action.title,
            "action": action,
            "fields": kept,
            "reason": fields.get("reason", ""),
            "has_reason": "cordon" in action.words,
            "command": command_line(action.words, self._settings.bootstrap),
            "problem": problem,
        }
        return self._render(request, "action", variables, status)

    async def _run(self, request: Request, action: Action) -> Response:
        user = request.state.session.user or ""
        command = command_line(action.words, self._settings.bootstrap)
        is_failed = False
        try:
            result = await run_in_threadpool(self._run_now, action)
        except (OperationFailed, *FAILURES) as error:
            result, is_failed = _reason(error), True
        now_ms = time.time_ns() // 1_000_000
        self._log.add(LogEntry(now_ms, user, action.title, command, result, is_failed))
        if is_failed:
            return self._problem(request, action.title, result, 502)
        return RedirectResponse("/log", 303)

    def _run_now(self, action: Action) -> str:
        with self._action_clients.one() as client:
            return action.run(client)

    # -- login

    async def _login(self, request: Request) -> Response:
        session = request.state.session
        if request.method == "GET":
            return self._render(request, "login", {"title": "Log in", "problem": ""})
        form = await request.form()
        if not self._access.is_own_form(session, str(form.get("csrf", ""))):
            problem, status = "The form is too old: try again.", 403
        elif self._access.is_locked():
            problem, status = "Too many logins have failed: wait a minute.", 429
        elif not self._access.is_right(str(form.get("name", "")), str(form.get("password", ""))):
            problem, status = "The name or the password is wrong.", 401
        else:
            self._access.end(session)
            request.state.session = self._access.begin(str(form["name"]))
            return RedirectResponse("/", 303)
        return self._render(request, "login", {"title": "Log in", "problem": problem}, status)

    async def _logout(self, request: Request) -> Response:
        form = await request.form()
        if self._access.is_own_form(request.state.session, str(form.get("csrf", ""))):
            self._access.end(request.state.session)
            request.state.session = self._access.begin()
        return RedirectResponse(LOGIN_PATH, 303)


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, OperationFailed) else failure(error).plainly


def _own_address(request: Request) -> str:
    """Return the path and the query of a page, to fetch it again."""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path
