"""Lets Schemathesis send uploads."""

import schemathesis


@schemathesis.serializer("application/vnd.fmp.upload")
def upload(ctx, value):
    return value if isinstance(value, bytes) else bytes(value.data) if hasattr(value, "data") else str(value).encode()
