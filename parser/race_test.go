//go:build race

package parser

// raceFactor is how much longer things may take under the race detector.
const raceFactor = 15
