package gateway

import (
	"strconv"
	"strings"

	"github.com/emersion/go-smtp"

	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// refusal turns an error into what the library writes as it is. Every error that a session returns goes through here,
// because go-smtp makes a 554 with the inner text of any other (case A1).
func refusal(err error) *smtp.SMTPError {
	reply := smtpreply.From(err).Reply()
	text := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f {
			return -1
		}
		return r
	}, reply.GetText())
	return &smtp.SMTPError{
		Code:         int(reply.GetCode()),
		EnhancedCode: enhancedCode(reply.GetEnhancedCode(), int(reply.GetCode())),
		Message:      text,
	}
}

// enhancedCode reads a code such as 5.1.1; what can't be read becomes X.0.0 of the reply's class. (RFC 3463.)
func enhancedCode(s string, code int) smtp.EnhancedCode {
	parts := strings.Split(s, ".")
	var ec smtp.EnhancedCode
	if len(parts) != len(ec) || parts[0] != strconv.Itoa(code/100) {
		return smtp.EnhancedCode{code / 100, 0, 0}
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 999 {
			return smtp.EnhancedCode{code / 100, 0, 0}
		}
		ec[i] = n
	}
	return ec
}

// queued is the reply that accepts a message. The library takes a success, too, from an error value.
func queued(id string) *smtp.SMTPError {
	return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.EnhancedCode{2, 0, 0}, Message: "Ok: queued as " + id}
}
