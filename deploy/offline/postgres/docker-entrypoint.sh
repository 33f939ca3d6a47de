#!/usr/bin/env bash
# The part of the official image's entrypoint that the compose file uses: on an empty data folder it makes the cluster
# with POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB (each also as NAME_FILE), then starts the server.
set -Eeuo pipefail

# value prints a variable, or the content of the file that NAME_FILE names.
value() {
  local name=$1 file="${1}_FILE"
  [ -z "${!name:-}" ] || [ -z "${!file:-}" ] || { echo "both $name and $file are set; give one" >&2; return 1; }
  if [ -n "${!file:-}" ]; then cat "${!file}"; else echo "${!name:-$2}"; fi
}

[ "${1#-}" = "$1" ] || set -- postgres "$@"
[ "$1" = postgres ] || exec "$@"

if [ "$(id -u)" = 0 ]; then
  mkdir -p "$PGDATA"
  chown -R postgres "$PGDATA" /var/run/postgresql
  exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  user=$(value POSTGRES_USER postgres)
  database=$(value POSTGRES_DB "$user")
  password=$(value POSTGRES_PASSWORD "")
  [ -n "$password" ] || { echo "POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE is not set" >&2; exit 1; }
  initdb --username="$user" --pwfile=<(printf '%s\n' "$password") --auth-local=trust --auth-host=scram-sha-256
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  if [ "$database" != postgres ]; then
    pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start
    psql -v ON_ERROR_STOP=1 --no-psqlrc -U "$user" -d postgres -v db="$database" <<<'CREATE DATABASE :"db"'
    pg_ctl -D "$PGDATA" -m fast -w stop
  fi
fi
exec "$@"
