FROM debian:bookworm
COPY . /usr/local/go
# Defaults that the environment overrides: where this machine's modules come from.
ARG GOPROXY GOSUMDB
RUN printf 'GOPROXY=%s\nGOSUMDB=%s\nGOTOOLCHAIN=local\n' "$GOPROXY" "$GOSUMDB" > /usr/local/go/go.env
ENV GOPATH=/go PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /go
