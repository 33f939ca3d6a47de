//go:build compose

package compose

import (
	"fmt"
	"strings"
)

// heavy is what follows the first header fields of a mail that costs parsers far more than anybody else: a tree of 900 small
// attachments whose names are encoded thrice over, about 120 KB.
var heavy = makeHeavy()

func makeHeavy() string {
	var b strings.Builder
	b.WriteString("MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=outer\r\n\r\n")
	for group := range 30 {
		fmt.Fprintf(&b, "--outer\r\nContent-Type: multipart/mixed; boundary=i%d\r\n\r\n", group)
		for range 30 {
			fmt.Fprintf(&b, "--i%d\r\nContent-Type: text/plain; charset=iso-2022-jp;\r\n name=\"=?iso-2022-jp?B?GyRCJFUbKEI=?=\"\r\n"+
				"Content-Disposition: attachment\r\n\r\nx\r\n", group)
		}
		fmt.Fprintf(&b, "--i%d--\r\n", group)
	}
	b.WriteString("--outer--\r\n")
	return b.String()
}
