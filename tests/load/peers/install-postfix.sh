#!/bin/sh
# Installs Debian's Postfix to be measured beside us. Without a configuration of the system's own its service is not started.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
echo 'postfix postfix/main_mailer_type select No configuration' | debconf-set-selections
apt-get -qq install -y --no-install-recommends postfix
