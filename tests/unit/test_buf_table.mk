# test_buf_table.mk
#
# Made of PostgreSQL's buf_table.c as the series leaves it, compiled as for the server,
# and not of the library.  What it does not call, and what that would call in the
# server, is left out by the linker.  To be included by Makefile.

BUFFER := $(SOURCE)/src/backend/storage/buffer

$(OUT)/test_buf_table: test_buf_table.c unit.h $(BUFFER)/buf_table.c Makefile test_buf_table.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(CPPFLAGS) -UFRONTEND -I$(BUFFER) \
		-ffunction-sections -fdata-sections -Wl,--gc-sections -o $@ $< \
		-lcmocka $(PG)/src/common/libpgcommon_srv.a $(PG)/src/port/libpgport_srv.a $(LIBS) -lm
