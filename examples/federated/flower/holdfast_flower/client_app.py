"""The client: one device, which says who it is and trains on its own data.

A SuperNode's --node-config names the device and its data:

    client="ward-7" data="/srv/images"      its own file or folder, such as `data.path` of the configuration
    client="client-3"                       a trial: that client's part of the configuration's data
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from holdfast.errors import InputError

app = ClientApp()


@app.query()
def join(message: Message, context: Context) -> Message:
    """Say which client this is."""
    content = RecordDict({"client": ConfigRecord({"name": client_name(context)})})
    return Message(content, reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train as `holdfast federated run` does, or say why not."""
    # Each message has a process of its own: only this kind waits for torch.
    from holdfast_flower.device import trained
    from holdfast_flower.messages import failure_content

    try:
        content = trained(message.content, context, client_name(context))
    except Exception as error:  # whatever it is, the server shall name it
        content = failure_content(f"{type(error).__name__}: {error}")
    return Message(content, reply_to=message)


def client_name(context: Context) -> str:
    """The name of this client.

    Raises:
        InputError: ``missing-key``.
    """
    name = context.node_config.get("client")
    if not name:
        raise InputError(
            "this SuperNode has no name",
            code="missing-key",
            place="client",
            remedy="flower-supernode --node-config 'client=\"client-0\"'",
        )
    return str(name)
