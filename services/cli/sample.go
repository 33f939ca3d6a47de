package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/rohrpost/rohrpost/services/process"
)

const (
	sampleSender    = "postbote@" + SampleDomain
	sampleRecipient = "you@example.test"
	sampleBounce    = "nobody@bounce.test"
)

// makeSample writes a sample mail with lines that end in CRLF. key may be nil: then it is not signed.
func makeSample(kind string, to []string, key *SampleKey, now time.Time) ([]byte, error) {
	subject, body := "Greetings by pneumatic tube", textPart(greeting)
	switch kind {
	case "attachment":
		var err error
		if body, err = attachmentBody(); err != nil {
			return nil, err
		}
		subject = "A picture by pneumatic tube"
	case "bad-dkim":
		if key == nil {
			return nil, process.Usage("--sample bad-dkim needs the samples' key; start `rohrpost up` first, or name its data folder with --data")
		}
		subject = "A mail that was changed on its way"
	case "bounce":
		subject = "A mail that comes back"
	}
	var mail bytes.Buffer
	fmt.Fprintf(&mail, "Date: %s\r\nFrom: Der Postbote <%s>\r\nTo: %s\r\nMessage-ID: <%s@%s>\r\nSubject: %s\r\nMIME-Version: 1.0\r\n",
		now.Format(time.RFC1123Z), sampleSender, strings.Join(to, ",\r\n "), strings.ToLower(rand.Text()), SampleDomain, subject)
	mail.WriteString(body)
	if key == nil {
		return mail.Bytes(), nil
	}
	signed, err := key.sign(mail.Bytes())
	if err == nil && kind == "bad-dkim" {
		signed = append(signed, "This line was added after the mail had been signed.\r\n"...)
	}
	return signed, err
}

// sign puts a DKIM-Signature before a mail.
func (k *SampleKey) sign(mail []byte) ([]byte, error) {
	var signed bytes.Buffer
	err := dkim.Sign(&signed, bytes.NewReader(mail), &dkim.SignOptions{
		Domain:                 SampleDomain,
		Selector:               sampleSelector,
		Signer:                 k.signer,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed,
		BodyCanonicalization:   dkim.CanonicalizationRelaxed,
		HeaderKeys:             []string{"From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"},
	})
	if err != nil {
		return nil, fmt.Errorf("signing the sample: %w", err)
	}
	return signed.Bytes(), nil
}

const greeting = "Hello!\r\n\r\nThis mail came through a gateway, a spool, a parser, a filter and a deliver service.\r\nGrüße aus der Rohrpost.\r\n"

// textPart is a text with its fields, in quoted-printable where it is not ASCII.
func textPart(text string) string {
	encoded := strings.NewReplacer("=", "=3D", "ü", "=C3=BC", "ß", "=C3=9F").Replace(text)
	return "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n" + encoded
}

// attachmentBody is a multipart with a text and a small picture.
func attachmentBody() (string, error) {
	const side, boundary = 48, "=_rohrpost_sample"
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			c := color.NRGBA{R: 0xf2, G: 0xb1, B: 0x34, A: 0xff}
			if dx, dy := x-side/2, y-side/2; dx*dx+dy*dy < side*side/6 {
				c = color.NRGBA{R: 0x2b, G: 0x3a, B: 0x55, A: 0xff}
			}
			img.SetNRGBA(x, y, c)
		}
	}
	var picture bytes.Buffer
	if err := png.Encode(&picture, img); err != nil {
		return "", fmt.Errorf("drawing the sample's picture: %w", err)
	}
	var body strings.Builder
	fmt.Fprintf(&body, "Content-Type: multipart/mixed; boundary=\"%s\"\r\n\r\n", boundary)
	fmt.Fprintf(&body, "--%s\r\n%s\r\n--%s\r\n", boundary, textPart(greeting), boundary)
	body.WriteString("Content-Type: image/png\r\nContent-Disposition: attachment; filename=\"tube.png\"\r\nContent-Transfer-Encoding: base64\r\n\r\n")
	encoded := base64.StdEncoding.EncodeToString(picture.Bytes())
	for len(encoded) > 0 {
		n := min(76, len(encoded)) // RFC 2045, section 6.8
		body.WriteString(encoded[:n] + "\r\n")
		encoded = encoded[n:]
	}
	fmt.Fprintf(&body, "--%s--\r\n", boundary)
	return body.String(), nil
}
