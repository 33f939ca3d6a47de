package cli

import (
	"fmt"
	"strings"

	"github.com/rohrpost/rohrpost/services/process"
)

// Certs is the command `certs`: a development CA and a certificate for each service.
type Certs struct {
	Dir     string   `arg:"" help:"Folder for the certificates; made where it is missing."`
	Name    []string `name:"name" placeholder:"HOST" help:"Another host name or IP address for every certificate. Can be given several times."`
	Service []string `name:"service" placeholder:"SERVICE" help:"Only for these services. Can be given several times."`
}

// Run makes what is missing or about to expire.
func (c *Certs) Run(std *IO) error {
	for _, service := range c.Service {
		if strings.Trim(service, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || service == "" || service == "ca" {
			return process.Usage("--service: %q is not a service's word; use letters, such as gateway", service)
		}
	}
	made, err := process.MakeCertificates(c.Dir, process.CertificateOptions{Services: c.Service, Names: c.Name})
	if err != nil {
		return err
	}
	if len(made) == 0 {
		_, err = fmt.Fprintf(std.Out, "%s: every certificate is there and good for more than 30 days\n", c.Dir)
		return err
	}
	_, err = fmt.Fprintf(std.Out, "%s: made %s\n", c.Dir, strings.Join(made, ", "))
	return err
}
