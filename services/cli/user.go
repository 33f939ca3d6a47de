package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/rohrpost/rohrpost/gateway/user"
	"github.com/rohrpost/rohrpost/services/process"
)

// User is the command `user`: who may submit mail.
type User struct {
	Add UserAdd `cmd:"" help:"Add a user who may submit mail, or give one a new password."`
}

// UserAdd adds a user to the gateway's file of users, which the gateway reads again by itself.
type UserAdd struct {
	Name   string   `arg:"" help:"Name to log in with, such as the mail address."`
	Sender []string `name:"sender" placeholder:"PATTERN" help:"Addresses that the user may send from (ann@example.org, example.org, *.example.org); default: the name."`
	File   string   `name:"file" placeholder:"FILE" help:"File of users, gateway.auth.users of the configuration (default: users in the data folder)."`
	Data   string   `name:"data" env:"ROHRPOST_DATA" placeholder:"DIR" help:"Data folder of rohrpost up (default rohrpost-data)."`
}

// Run asks for the password, or reads it as one line from standard input where that is no terminal.
func (c *UserAdd) Run(std *IO) error {
	path := c.File
	if path == "" {
		dir := c.Data
		if dir == "" {
			dir = defaultData
		}
		path = filepath.Join(dir, process.UsersFile)
	}
	password, err := readPassword(std)
	if err != nil {
		return err
	}
	if err := user.Add(path, c.Name, password, c.Sender); err != nil {
		return process.Usage("%w", err)
	}
	_, err = fmt.Fprintf(std.Out, "%s may submit mail now (%s).\n", c.Name, path)
	return err
}

const minPassword = 8

func readPassword(std *IO) (string, error) {
	var password string
	if f, ok := std.In.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if _, err := fmt.Fprint(std.Out, "Password: "); err != nil {
			return "", err
		}
		typed, err := term.ReadPassword(int(f.Fd()))
		if _, perr := fmt.Fprintln(std.Out); err == nil {
			err = perr
		}
		if err != nil {
			return "", fmt.Errorf("reading the password: %w", err)
		}
		password = string(typed)
	} else {
		line, err := bufio.NewReader(std.In).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reading the password: %w", err)
		}
		password = strings.TrimRight(line, "\r\n")
	}
	if len(password) < minPassword {
		return "", process.Usage("the password is too short: give at least %d characters, on standard input", minPassword)
	}
	return password, nil
}
