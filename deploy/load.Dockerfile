# rohrload, which makes load on mail servers, for the profile `load`. Like deploy/Dockerfile it is built from the root of the
# repository, with the .dockerignore beside it.
FROM golang:1.26 AS build
WORKDIR /src
ENV CGO_ENABLED=0
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -buildvcs=false -ldflags "-s -w" -o /rohrload ./tests/cmd/rohrload

FROM scratch
COPY --from=build /rohrload /usr/bin/rohrload
USER 65532:65532
ENTRYPOINT ["/usr/bin/rohrload"]
