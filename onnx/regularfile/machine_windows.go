package regularfile

import (
	"slices"
	"syscall"
)

// machine are the errors of Windows, by their ERROR_ names. They are listed, as most of its other
// errors are of names and of rights.
var machine = []syscall.Errno{
	4,   // TOO_MANY_OPEN_FILES
	8,   // NOT_ENOUGH_MEMORY
	14,  // OUTOFMEMORY
	21,  // NOT_READY
	23,  // CRC
	27,  // SECTOR_NOT_FOUND
	29,  // WRITE_FAULT
	30,  // READ_FAULT
	31,  // GEN_FAILURE
	39,  // HANDLE_DISK_FULL
	51,  // REM_NOT_LIST
	53,  // BAD_NETPATH
	54,  // NETWORK_BUSY
	55,  // DEV_NOT_EXIST
	59,  // UNEXP_NET_ERR
	64,  // NETNAME_DELETED
	67,  // BAD_NET_NAME
	71,  // REQ_NOT_ACCEP
	88,  // NET_WRITE_FAULT
	112, // DISK_FULL
	121, // SEM_TIMEOUT
	223, // FILE_TOO_LARGE
	362, // CLOUD_FILE_PROVIDER_NOT_RUNNING
	404, // CLOUD_FILE_NETWORK_UNAVAILABLE
	483, // DEVICE_HARDWARE_ERROR

	1006, // FILE_INVALID
	1117, // IO_DEVICE
	1167, // DEVICE_NOT_CONNECTED
	1203, // NO_NET_OR_BAD_PATH
	1222, // NO_NETWORK
	1231, // NETWORK_UNREACHABLE
	1232, // HOST_UNREACHABLE
	1236, // CONNECTION_ABORTED
	1295, // DISK_QUOTA_EXCEEDED
	1393, // DISK_CORRUPT
	1450, // NO_SYSTEM_RESOURCES
	1453, // WORKING_SET_QUOTA
	1455, // COMMITMENT_LIMIT
}

func ofMachine(errno syscall.Errno) bool { return slices.Contains(machine, errno) }
