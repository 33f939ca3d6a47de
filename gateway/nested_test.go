package gateway_test

import "testing"

// A second MAIL is out of sequence while a transaction is open (RFC 5321, section 4.1.4). The library takes it and keeps
// the recipients of the first, so that content would be accepted for nobody.
func TestNestedMail(t *testing.T) {
	spool := &fakeSpool{}
	d := start(t, spool, startOptions{}).dial(t)
	d.envelope()
	d.cmd("MAIL FROM:<other@client.test>", "503 5.5.1")
	d.cmd("DATA", "354 ")
	d.cmd("Subject: x\r\n\r\nx\r\n.", "250 ")
	all := spool.all()
	if len(all) != 1 || all[0].sub.Envelope.GetSender() != "a@client.test" || len(all[0].sub.Envelope.GetRecipients()) != 1 {
		t.Errorf("stored %v", all)
	}
	d.cmd("MAIL FROM:<other@client.test>", "250 ")
	d.cmd("RSET", "250 ")
	d.cmd("MAIL FROM:<other@client.test>", "250 ")
	d.cmd("DATA", "503 ")
}
