# test_list.mk
#
# Made of the library's sources, as test_buf_table is of the server's, see
# test_buf_table.mk.  No address sanitizer, which does not know coroutines.  To be
# included by Makefile.

LIBRARY := $(PMEM)/library

$(OUT)/test_list: test_list.c unit.h interleave.h $(LIBRARY)/pcache_list.c $(wildcard $(PMEM)/pool/*.c) \
		$(wildcard ../../src/include/storage/pcache*.h) Makefile test_list.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(if $(SANITIZE),-fno-sanitize=address) $(CPPFLAGS) -UFRONTEND -U_FORTIFY_SOURCE \
		-I$(LIBRARY) -ffunction-sections -fdata-sections -Wl,--gc-sections -o $@ $< \
		$(PMEM)/pool/pcache_judge.c $(PMEM)/pool/pcache_range.c -lcmocka $(PGPORT_SRV) -lm
