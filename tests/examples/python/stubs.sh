#!/bin/sh
# Makes the Python stubs: stubs.sh PROTO OUT, where PROTO is the folder proto of this repository. It needs Debian's packages
# protobuf-compiler, protobuf-compiler-grpc and libprotobuf-dev; send.py needs python3-grpcio.
set -eu
mkdir -p "$2"
protoc -I "$1" --python_out="$2" --grpc_out="$2" --plugin=protoc-gen-grpc="$(command -v grpc_python_plugin)" \
  "$1"/rohrpost/mail/v1/*.proto "$1"/rohrpost/send/v1/*.proto "$1"/rohrpost/admin/v1/*.proto
