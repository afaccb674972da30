"""Checks each HTTP request before a page sees it, and adds the headers of its response."""

from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spindle.console.sessions import MAX_AGE_S, ConsoleSessions, Session

COOKIE: Final = "spindle_console"
LOGIN_PATH: Final = "/login"
_STATIC: Final = "/static/"
MAX_FORM_BYTES: Final = 64 * 1024
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Host, origin, session and login of each request, around the application.

    Args:
        hosts: names in the Host header that this console serves. A page of another site whose name
            is made to point here (DNS rebinding) has another one.
        is_tls: mark cookies as Secure.
    """

    def __init__(
        self, app: ASGIApp, access: ConsoleSessions, hosts: frozenset[str], *, is_tls: bool
    ) -> None:
        self._app = app
        self._access = access
        self._hosts = hosts
        self._is_tls = is_tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the response of the page, or a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        is_static = request.url.path.startswith(_STATIC)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if not is_static:
                    headers["Cache-Control"] = "no-store"
                self._add_cookie(request, headers)
            await send(message)

        response = self._refusal(request)
        if response is None and not is_static:
            response = self._begin_session(request)
        await (response or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        header = request.headers.get("host", "")
        if (_host_of(header) or "") not in self._hosts:
            text = (
                f"This console does not serve the host name {header!r}; it serves "
                f"{', '.join(sorted(self._hosts))}. Add one with --host-name."
            )
            return PlainTextResponse(text, 421)
        if request.method in ("GET", "HEAD"):
            return None
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != header:
            return PlainTextResponse(f"A form of {origin!r} may not change this cluster.", 403)
        length = request.headers.get("content-length", "")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_FORM_BYTES:
            return PlainTextResponse(f"A form has at most {MAX_FORM_BYTES} bytes.", 413)
        return None

    def _begin_session(self, request: Request) -> Response | None:
        """Give the request its session; return a response if the user must log in first."""
        session = self._access.find(request.cookies.get(COOKIE))
        basic = request.headers.get("authorization")
        if session is None and self._access.needs_login and basic is not None:
            user = self._access.basic_user(basic)
            if user is None:
                return PlainTextResponse("The name or the password is wrong.", 401)
            session = self._access.begin(user)
        session = session or self._access.begin()
        request.state.session = session
        if session.user is not None or request.url.path == LOGIN_PATH:
            return None
        if request.headers.get("hx-request"):
            # The page that is open goes to the login as a whole.
            return Response(status_code=204, headers={"HX-Redirect": LOGIN_PATH})
        if request.method != "GET" or request.url.path == "/events":
            return PlainTextResponse("The session has ended: log in again.", 401)
        return RedirectResponse(LOGIN_PATH, 303)

    def _add_cookie(self, request: Request, headers: MutableHeaders) -> None:
        """Tell the browser its session, unless it knows it."""
        session: Session | None = getattr(request.state, "session", None)
        if session is None or session.session_id == request.cookies.get(COOKIE):
            return
        carrier = Response()
        carrier.set_cookie(
            COOKIE,
            session.session_id,
            max_age=int(MAX_AGE_S),
            httponly=True,
            secure=self._is_tls,
            samesite="strict",
        )
        headers.append("Set-Cookie", carrier.headers["set-cookie"])


def _host_of(header: str) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None
