"""Checks each HTTP request before a page sees it, and adds the headers of its response."""

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

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
Next = Callable[[Request], Awaitable[Response]]


class Guard:
    """Host, origin, session and login of each request.

    Args:
        hosts: names in the Host header that this console serves. A page of another site whose name
            is made to point here (DNS rebinding) has another one.
        is_tls: mark cookies as Secure.
    """

    def __init__(self, access: ConsoleSessions, hosts: frozenset[str], *, is_tls: bool) -> None:
        self._access = access
        self._hosts = hosts
        self._is_tls = is_tls

    async def __call__(self, request: Request, call_next: Next) -> Response:
        """Return the response of the page, or a refusal."""
        response = self._refusal(request)
        if response is None:
            response = await self._within_session(request, call_next)
        response.headers.update(HEADERS)
        if not request.url.path.startswith(_STATIC):
            response.headers["Cache-Control"] = "no-store"
        return response

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

    async def _within_session(self, request: Request, call_next: Next) -> Response:
        if request.url.path.startswith(_STATIC):
            return await call_next(request)
        session = self._access.find(request.cookies.get(COOKIE))
        basic = request.headers.get("authorization")
        if session is None and self._access.needs_login and basic is not None:
            user = self._access.basic_user(basic)
            if user is None:
                return PlainTextResponse("The name or the password is wrong.", 401)
            session = self._access.begin(user)
        is_new = session is None
        session = session or self._access.begin()
        request.state.session = session
        if session.user is None and request.url.path != LOGIN_PATH:
            return self._to_login(request, session)
        response = await call_next(request)
        if is_new or request.state.session is not session or basic is not None:
            self._set_cookie(response, request.state.session)
        return response

    def _to_login(self, request: Request, session: Session) -> Response:
        response: Response
        if request.headers.get("hx-request"):
            # The page that is open goes to the login as a whole.
            response = Response(status_code=204, headers={"HX-Redirect": LOGIN_PATH})
        elif request.method != "GET" or request.url.path == "/events":
            response = PlainTextResponse("The session has ended: log in again.", 401)
        else:
            response = RedirectResponse(LOGIN_PATH, 303)
        self._set_cookie(response, session)
        return response

    def _set_cookie(self, response: Response, session: Session) -> None:
        response.set_cookie(
            COOKIE,
            session.session_id,
            max_age=int(MAX_AGE_S),
            httponly=True,
            secure=self._is_tls,
            samesite="strict",
        )


def _host_of(header: str) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None
