package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rohrpost/rohrpost/services/process"
)

// Secrets is the command `secrets`: all that separate services must have before they start, each in a folder that can be
// mounted alone.
type Secrets struct {
	Dir  string   `arg:"" help:"Folder for the folders ca, database, spool, gateway, and so on; made where it is missing."`
	Also []string `name:"also" enum:"application,operator" placeholder:"SERVICE" help:"A certificate for application or operator, too. Can be given several times."`
	Name []string `name:"name" placeholder:"HOST" help:"Another host name or IP address for every certificate. Can be given several times."`
}

// Run makes what is missing or about to expire.
func (c *Secrets) Run(std *IO) error {
	made, err := process.MakeCertificates(c.Dir, process.CertificateOptions{
		Services: append(process.CertificateServices(), c.Also...), Names: c.Name, Split: true,
	})
	if err != nil {
		return err
	}
	isNew, err := process.MakeDatabasePassword(filepath.Join(c.Dir, "database"))
	if err != nil {
		return err
	}
	if isNew {
		made = append(made, "database")
	}
	if len(made) == 0 {
		_, err = fmt.Fprintf(std.Out, "%s: every certificate is there and good for more than 30 days\n", c.Dir)
		return err
	}
	_, err = fmt.Fprintf(std.Out, "%s: made %s\n", c.Dir, strings.Join(made, ", "))
	return err
}
