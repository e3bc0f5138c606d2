"""Ready clients for services that jobs call: chat models, speech to text, and JSON gateways.

They are async, and made for stages: one request for each call and no retries of their own, a limit on the total
time and on the size of an answer, the job's idempotency key in a header, and failures that the classifier knows.
Nothing else in the library uses them; any other client can be used instead.
"""

from holdfast.core.errors import ConfigError

try:
    import httpx  # noqa: F401 - an extra; checked here for all clients
except ModuleNotFoundError as error:
    raise ConfigError(
        "the ready clients need httpx; install it with: pip install 'holdfast[http]'"
    ) from error

from holdfast.providers.chat import ChatClient
from holdfast.providers.gateway import JsonGateway
from holdfast.providers.speech import SpeechClient, Transcript

__all__ = ["ChatClient", "JsonGateway", "SpeechClient", "Transcript"]
