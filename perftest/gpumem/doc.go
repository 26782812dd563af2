// Package gpumem allocates memory of GPUs for the tests of package probe (tag cuda).
package gpumem
