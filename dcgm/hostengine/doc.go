// Package hostengine runs the diagnostics of NVIDIA's DCGM through its program dcgmi, and returns
// their results as those of checks. It reads the JSON of DCGM 2 to 4, which has no schema:
// unknown keys are ignored, and no key is required.
package hostengine
