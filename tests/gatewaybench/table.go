package gatewaybench

import (
	"fmt"
	"io"

	"github.com/rohrpost/rohrpost/tests/load/report"
)

// Markdown writes the tables for docs/performance.md.
func (o *Options) Markdown(w io.Writer, r *report.Report) error {
	wire := "in clear text"
	if o.TLS {
		wire = "with mutual TLS"
	}
	return r.Sheet(w, "gRPC between the processes "+wire+"; in brackets what the figure is to be", o.sections())
}

// sections are the tables in the order of the document.
func (o *Options) sections() []report.Section {
	return []report.Section{
		{Title: fmt.Sprintf("%d sessions at once, 10 ms before each reply, 4 KiB each", o.Sessions), Case: caseStudy, Figures: append(append([]report.Figure{
			{Name: "gateway: what did not go as it must [0]", Key: ours + "_astray", Format: "%.0f"},
			{Name: "gateway: open at once, at most", Key: ours + "_open", Format: "%.0f"},
			{Name: "gateway: sessions a second", Key: ours + "_rate", Format: "%.0f"},
			{Name: "library: sessions a second", Key: library + "_rate", Format: "%.0f"},
			{Name: "gateway: CPU, µs a session", Key: ours + "_cpu", Format: "%.0f"},
			{Name: "library: CPU, µs a session", Key: library + "_cpu", Format: "%.0f"},
			{Name: "gateway ÷ library: CPU a session [1.3 at most]", Key: "cpu_of_library", Format: "%.2f"},
			{Name: "gateway: peak PSS under way, KiB a session", Key: ours + "_pss", Format: "%.1f"},
			{Name: "library: peak PSS under way, KiB a session", Key: library + "_pss", Format: "%.1f"},
		}, held(ours, "[24 at most]", "[36 at most]")...), held(library, "", "")...)},
		{Title: "The same with STARTTLS", Case: caseStudyTLS, Figures: append(held(ours, "", ""), held(library, "", "")...)},
		{Title: "Ten messages a connection, 50 connections, 4 KiB each, no delay", Case: caseKept, Figures: []report.Figure{
			{Name: "gateway: messages a second", Key: ours + "_rate", Format: "%.0f"},
			{Name: "library: messages a second", Key: library + "_rate", Format: "%.0f"},
			{Name: "gateway: CPU, µs a message", Key: ours + "_cpu", Format: "%.0f"},
			{Name: "library: CPU, µs a message", Key: library + "_cpu", Format: "%.0f"},
			{Name: "gateway ÷ library: CPU a message [1.2 at most]", Key: "cpu_of_library", Format: "%.2f"},
		}},
		{Title: fmt.Sprintf("Messages of 1 MB, %d connections", largeSessions), Case: caseLarge, Figures: []report.Figure{
			{Name: "gateway: MB of content by a second of CPU [300 at least]", Key: ours + "_mb", Format: "%.0f"},
			{Name: "library: MB of content by a second of CPU", Key: library + "_mb", Format: "%.0f"},
			{Name: "gateway: MB a second", Key: ours + "_rate", Format: "%.0f"},
			{Name: "library: MB a second", Key: library + "_rate", Format: "%.0f"},
			{Name: "gateway: peak PSS, MiB", Key: ours + "_pss", Format: "%.0f"},
			{Name: "gateway: peak PSS in as much time again, MiB [no more]", Key: ours + "_later_pss", Format: "%.0f"},
		}},
		{Title: "STARTTLS sessions, 50 at once, a full handshake and a message of 4 KiB each, no delay", Case: caseTLS, Figures: []report.Figure{
			{Name: "gateway: sessions a second", Key: ours + "_rate", Format: "%.0f"},
			{Name: "library: sessions a second", Key: library + "_rate", Format: "%.0f"},
			{Name: "gateway, without TLS: sessions a second", Key: ours + "_plain_rate", Format: "%.0f"},
			{Name: "library, without TLS: sessions a second", Key: library + "_plain_rate", Format: "%.0f"},
			{Name: "OpenSSL's s_server, on one core, and two s_time: handshakes a second", Key: "openssl_rate", Format: "%.0f"},
			{Name: "gateway: what TLS adds, µs of CPU a session", Key: ours + "_handshake_cpu", Format: "%.0f"},
			{Name: "library: what TLS adds, µs of CPU a session", Key: library + "_handshake_cpu", Format: "%.0f"},
			{Name: "OpenSSL's s_server: CPU, µs a handshake", Key: "openssl_handshake_cpu", Format: "%.0f"},
		}},
		{Title: "Replies to EHLO, MAIL and RCPT under a flood of MIME bombs, parsers in a process of lower priority", Case: caseApart, Figures: flooded("[2 at most]")},
		{Title: "The same with `rohrpost up`", Case: caseUp, Figures: flooded("")},
	}
}

// held are the rows of sessions that wait.
func held(who, used, resident string) []report.Figure {
	row := func(name, key, mark string) report.Figure {
		if mark != "" {
			name += " " + mark
		}
		return report.Figure{Name: who + ": " + name, Key: who + key, Format: "%.1f"}
	}
	return []report.Figure{
		row("heap in use while all are open and wait, KiB a session", "_held_heap", ""),
		row("stacks in use, KiB a session", "_held_stacks", ""),
		row("heap and stacks in use, KiB a session", "_held", used),
		row("peak PSS until then, KiB a session", "_held_pss", resident),
	}
}

// flooded are the rows of replies under a flood.
func flooded(mark string) []report.Figure {
	ratio := "flooded ÷ quiet, p99"
	if mark != "" {
		ratio += " " + mark
	}
	return []report.Figure{
		{Name: "quiet, p50, ms", Key: "quiet_p50", Format: "%.2f"},
		{Name: "quiet, p99, ms", Key: "quiet_p99", Format: "%.2f"},
		{Name: "flooded, p50, ms", Key: "flooded_p50", Format: "%.2f"},
		{Name: "flooded, p99, ms", Key: "flooded_p99", Format: "%.2f"},
		{Name: "flooded ÷ quiet, p50", Key: "flooded_of_quiet_p50", Format: "%.2f"},
		{Name: ratio, Key: "flooded_of_quiet_p99", Format: "%.2f"},
		{Name: "bombs accepted a second", Key: "bombs", Format: "%.0f"},
		{Name: "the machine is busy, quiet, %", Key: "quiet_busy", Format: "%.0f"},
		{Name: "the machine is busy, flooded, %", Key: "flooded_busy", Format: "%.0f"},
	}
}
