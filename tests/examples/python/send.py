"""Sends a message by one call and waits for what becomes of it.

The stubs are made from proto/ into a folder of PYTHONPATH, see docs/clients.md.
"""
import argparse
import email.policy
import email.message
import email.utils
import uuid

import grpc
from rohrpost.admin.v1 import admin_service_pb2 as admin
from rohrpost.admin.v1 import admin_service_pb2_grpc as admin_rpc
from rohrpost.mail.v1 import journal_pb2 as journal
from rohrpost.send.v1 import send_service_pb2 as send
from rohrpost.send.v1 import send_service_pb2_grpc as send_rpc

options = argparse.ArgumentParser()
options.add_argument("--grpc", default="127.0.0.1:7025", help="address of the spool")
options.add_argument("--token", default="rohrpost-data/token", help="file of the token")
options.add_argument("--to", default="bob@b.example", help="recipient")
options = options.parse_args()

with open(options.token, encoding="ascii") as file:
    metadata = [("authorization", "Bearer " + file.read().strip())]

mail = email.message.EmailMessage(policy=email.policy.SMTP)  # lines end with CRLF
mail["From"], mail["To"], mail["Subject"] = "shop@a.example", options.to, "Your order"
mail["Date"], mail["Message-ID"] = email.utils.localtime(), email.utils.make_msgid(domain="a.example")
mail.set_content("It is on its way. Grüße!")

with grpc.insecure_channel(options.grpc) as channel:
    # The key makes it safe to call again after any failure: keep it with the order.
    request = send.SendMessageRequest(
        idempotency_key=str(uuid.uuid4()), sender="shop@a.example", recipients=[options.to], content=bytes(mail))
    stub = send_rpc.SendServiceStub(channel)
    sent = stub.SendMessage(request, metadata=metadata, timeout=60)
    assert stub.SendMessage(request, metadata=metadata, timeout=60).repeated_call

    waited = admin_rpc.AdminServiceStub(channel).WaitMessage(
        admin.WaitMessageRequest(id=sent.id, until=[admin.MESSAGE_STATE_ENDED]), metadata=metadata, timeout=60)
    for recipient in waited.message.summary.recipients:
        print(sent.id, recipient.address, journal.RecipientState.Name(recipient.state), recipient.last_reply.text)
