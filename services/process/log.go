package process

import (
	"io"
	"log/slog"
	"os"
)

// LogConfig is the section `log`.
type LogConfig struct {
	// Level is the least important level that is written: debug, info, warn or error.
	Level slog.Level `yaml:"level"`
	// Format is text, json, or auto: text on a terminal, JSON otherwise.
	Format string `yaml:"format"`
}

// DefaultLogConfig writes from info on in the format that fits the output.
func DefaultLogConfig() LogConfig { return LogConfig{Level: slog.LevelInfo, Format: "auto"} }

// Validate checks the section.
func (c LogConfig) Validate() error {
	switch c.Format {
	case "text", "json", "auto":
		return nil
	default:
		return Usage("log.format: %q is not a format; use text, json or auto", c.Format)
	}
}

// NewLogger makes a process's logger. Every line carries the service's name, unless that is empty.
func NewLogger(w io.Writer, cfg LogConfig, service string) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.Level}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if cfg.Format == "text" || cfg.Format != "json" && Terminal(w) {
		handler = slog.NewTextHandler(w, options)
	}
	logger := slog.New(handler)
	if service != "" {
		logger = logger.With(slog.String("service", service))
	}
	return logger
}

// Terminal tells whether a person reads what is written to w.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
