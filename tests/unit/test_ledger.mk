# test_ledger.mk
#
# Compiled for pools of the library like test_library, see test_library.mk, and with
# libxxhash if it is there.  Without it, what needs sums is skipped.  To be included by
# Makefile.

PKG_CONFIG ?= pkg-config
XXHASH := $(shell $(PKG_CONFIG) --exists libxxhash 2>/dev/null && echo yes)
LEDGER_FLAGS := -DPCACHE_SERVER_FORMAT=3 $(if $(XXHASH),-DUSE_XXHASH=1 $(shell $(PKG_CONFIG) --cflags libxxhash))
LEDGER_SRCS := $(addprefix $(PMEM)/pool/pcache_,gate.c harvest.c pool.c sum_none.c sum_xxhash.c superblock.c)

$(OUT)/test_ledger: test_ledger.c unit.h $(LEDGER_SRCS) $(LIBPCACHE) $(wildcard ../../src/include/storage/pcache*.h) \
		Makefile test_ledger.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(CPPFLAGS) $(LEDGER_FLAGS) -o $@ $< $(LEDGER_SRCS) $(LIBPCACHE) \
		-lcmocka $(PGLIBS) $(LIBS) $(if $(XXHASH),$(shell $(PKG_CONFIG) --libs libxxhash))
