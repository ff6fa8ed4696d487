# test_protocol.mk
#
# A program of its own kind: made of the server's sources, compiled as for the
# server, and not of the library.  What it does not call of them, and what that
# would call in the server, is left out by the linker.  No address sanitizer,
# which does not know coroutines.  To be included by Makefile.

$(OUT)/test_protocol: test_protocol.c unit.h unit_protocol.h unit_shmem.h interleave.h violation.h $(wildcard $(PMEM)/*.c $(PMEM)/*/*.c) \
		$(wildcard ../../src/include/storage/pcache*.h) Makefile test_protocol.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(if $(SANITIZE),-fno-sanitize=address) $(CPPFLAGS) -UFRONTEND -U_FORTIFY_SOURCE \
		-ffunction-sections -fdata-sections -Wl,--gc-sections -o $@ $< \
		$(PMEM)/pool/pcache_gate.c $(PMEM)/pool/pcache_range.c -lcmocka $(PG)/src/port/libpgport_srv.a -lm
