# test_library.mk
#
# What depends on the format, compiled for pools of the library.  The rest is that
# of all tests.  To be included by Makefile.

LIBRARY_SRCS := $(addprefix $(PMEM)/pool/pcache_,facts.c find.c foretell.c format.c gate.c harvest.c pool.c record.c superblock.c)

$(OUT)/test_library: test_library.c unit.h $(LIBRARY_SRCS) $(LIBPCACHE) $(wildcard ../../src/include/storage/pcache*.h) \
		Makefile test_library.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(CPPFLAGS) -DPCACHE_SERVER_FORMAT=3 -o $@ $< $(LIBRARY_SRCS) $(LIBPCACHE) \
		-lcmocka $(PGLIBS) $(LIBS)
