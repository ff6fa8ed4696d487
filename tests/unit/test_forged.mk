# test_forged.mk
#
# Made of the server's sources like test_protocol, see test_protocol.mk, and
# with a function called in each basic block.  To be included by Makefile.

$(OUT)/test_forged: test_forged.c unit.h unit_server.h unit_shmem.h $(PMEM)/start/pcache_mapping.c $(BUFFER)/buf_table.c $(PMEM)/pool/pcache_relsize.c \
		$(wildcard ../../src/include/storage/pcache*.h) \
		Makefile test_forged.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(if $(SANITIZE),-fno-sanitize=address) -fsanitize-coverage=trace-pc $(CPPFLAGS) -UFRONTEND -I$(BUFFER) \
		-ffunction-sections -fdata-sections -Wl,--gc-sections -o $@ $< \
		-lcmocka $(PG)/src/common/libpgcommon_srv.a $(PG)/src/port/libpgport_srv.a $(LIBS) -lm
