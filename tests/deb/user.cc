// SPDX-License-Identifier: Apache-2.0
// A program in C++ that knows only what libsluice-dev has installed: every header, and a log.
#include <sluice/sluice.h>

#include <cstring>
#include <iostream>
#include <string>

int main()
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_wal_opts opts = {};
	sl_wal *log = nullptr;
	std::uint64_t sequence = 0;
	const std::string line = "from C++";

	opts.struct_size = sizeof opts;
	opts.wal_dir = "wal";
	if (std::strcmp(sl_version(), SL_VERSION) != 0)
		std::cout << "the library is not that of the headers\n";
	if (sl_wal_open(&log, "user", &opts, &err) != 0 ||
	    sl_wal_append(log, line.data(), line.size(), &sequence, &err) != 0 || sl_wal_close(log, &err) != 0) {
		std::cerr << err.msg << "\n";
		return 1;
	}
	std::cout << "record " << sequence << "\n";
	return 0;
}
