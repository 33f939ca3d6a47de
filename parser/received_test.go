package parser

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// TestTypedFields reads the fields that say how a message came and what list it is of.
func TestTypedFields(t *testing.T) {
	t.Parallel()
	m := check(t, crlf("Received: from b.example (reverse.example [IPv6:2001:DB8::1])\n (using TLSv1.3) by mx.example (Postfix) with ESMTPS\n"+
		" id 4711 for <bob@example.net>; Mon, 30 Nov 2026 10:00:01 +0100 (CET)\n"+
		"Received: by b.example with HTTP; today\n"+
		"Bcc: carol@example.net (Carol; Bob)\nKeywords: one, =?utf-8?q?zw=C3=B6lf?=\nKeywords: two\n"+
		"Date: 30 Nov 2026 10:00:00 -0330\n"+
		"List-Id: The list <list.example.net>\nList-Unsubscribe: <https://example.net/u?\n x=1>, (by mail) <mailto:u@example.net>\n"+
		"List-Unsubscribe-Post: List-Unsubscribe=One-Click\nList-Post: NO\nList-Help: <mailto:help@example.net>\n\n"), Limits{})
	want := &mailv1.ParsedMessage{
		Received: []*mailv1.Hop{
			{From: "b.example", Address: "2001:db8::1", By: "mx.example", With: "ESMTPS", Id: "4711", For: "bob@example.net", Time: &timestamppb.Timestamp{Seconds: 1796029201}},
			{By: "b.example", With: "HTTP"},
		},
		Bcc:               []*mailv1.Address{{Name: "Carol; Bob", Address: "carol@example.net", Comment: "Carol; Bob"}},
		Keywords:          []string{"one", "zwölf", "two"},
		Date:              &timestamppb.Timestamp{Seconds: 1796045400},
		DateOffsetMinutes: -210,
		List: &mailv1.MailingList{
			Id: "list.example.net", Unsubscribe: []string{"https://example.net/u?x=1", "mailto:u@example.net"}, OneClick: true,
			Help: []string{"mailto:help@example.net"},
		},
	}
	ignored := protocmp.IgnoreFields(want, "headers", "parts", "size", "defects")
	if diff := cmp.Diff(want, m, protocmp.Transform(), ignored); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"invalid_date"}, kinds(m)); diff != "" {
		t.Error(diff)
	}
}

// TestHopInOtherLetters: letters that take more or fewer octets when they are made small move nothing.
func TestHopInOtherLetters(t *testing.T) {
	t.Parallel()
	for _, letter := range []string{"\u023a", "\u0130", "\u212a"} {
		m := check(t, crlf("Received: from a by b; "+strings.Repeat(letter, 40)+" for x@example.net\nSubject: s\n\n"), Limits{})
		if len(m.GetReceived()) != 1 || m.GetReceived()[0].GetFor() != "x@example.net" || m.GetSubject() != "s" {
			t.Errorf("%s: got %v, subject %q", letter, m.GetReceived(), m.GetSubject())
		}
	}
}

// TestManyIDs: of a field the first ids count, and of one that has a single id its first.
func TestManyIDs(t *testing.T) {
	t.Parallel()
	m := check(t, crlf("Message-ID: <a@b> <\nReferences: "+strings.Repeat("<a@b> ", maxIDs)+"<c@d>\n\n"), Limits{})
	if m.GetMessageId() != "a@b" || len(m.GetReferences()) != maxIDs {
		t.Errorf("got %q, %d references", m.GetMessageId(), len(m.GetReferences()))
	}
	if diff := cmp.Diff([]string{"malformed_message_id", "malformed_message_id"}, kinds(m)); diff != "" {
		t.Error(diff)
	}
}
