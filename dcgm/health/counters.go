package health

// Names of counters. Those of time are in nanoseconds.
const (
	NVLinkCRCFlit        = "nvlink_crc_flit"
	NVLinkCRCData        = "nvlink_crc_data"
	NVLinkReplay         = "nvlink_replay"
	NVLinkRecovery       = "nvlink_recovery"
	NVLinkRecoveryFailed = "nvlink_recovery_failed"
	NVLinkSymbol         = "nvlink_symbol"
	NVLinkReceive        = "nvlink_receive"
	NVLinkIntegrity      = "nvlink_integrity"
	PCIeReplay           = "pcie_replay"
	PCIeCorrectable      = "pcie_correctable"
	PCIeNonFatal         = "pcie_nonfatal"
	PCIeFatal            = "pcie_fatal"
	ThermalViolation     = "thermal_violation_ns"
	ReliabilityViolation = "reliability_violation_ns"
	BoardViolation       = "board_violation_ns"
)
