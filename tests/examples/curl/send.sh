#!/bin/sh
# Sends a message as JSON over HTTP and waits for what becomes of it. It needs curl and nothing else.
set -eu
# Containers know an application by its certificate, `rohrpost up` by its token.
if [ -n "${ROHRPOST_TLS_DIR:-}" ]; then
  url=${ROHRPOST_URL:-https://127.0.0.1:7026}
  credentials="--cacert $ROHRPOST_TLS_DIR/ca.crt --cert $ROHRPOST_TLS_DIR/application.crt --key $ROHRPOST_TLS_DIR/application.key"
else
  url=${ROHRPOST_URL:-http://127.0.0.1:7026}
  credentials="--oauth2-bearer $(cat "${ROHRPOST_DATA:-rohrpost-data}/token")"
fi

call() { # call METHOD JSON
  # shellcheck disable=SC2086 # several words
  curl --silent --show-error --fail-with-body --max-time 60 $credentials "$url/rohrpost.$1" \
    -H "Content-Type: application/json" -d "$2"
}

# Octets are base64 in JSON. Every line of a mail ends with CRLF.
content=$(printf 'From: shop@a.example\r\nTo: bob@b.example\r\nSubject: Your order\r\n\r\nIt is on its way.\r\n' | base64 | tr -d '\n')
key=$(cat /proc/sys/kernel/random/uuid)
sent=$(call send.v1.SendService/SendMessage '{
  "idempotency_key": "'"$key"'", "sender": "shop@a.example", "recipients": ["bob@b.example"], "content": "'"$content"'"}')
id=$(printf %s "$sent" | sed 's/.*"id": *"\([^"]*\)".*/\1/')

call admin.v1.AdminService/WaitMessage '{"id": "'"$id"'", "until": ["MESSAGE_STATE_ENDED"], "timeout": "30s"}'
