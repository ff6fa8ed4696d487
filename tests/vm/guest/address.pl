# address.pl FILE OFFSET: the machine address of a byte of a file on fsdax
use strict;
use warnings;

my ($file, $offset) = @ARGV;
open my $f, '<', $file or die "$file: $!\n";
my $page = $offset - $offset % 4096;
# mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, page) on x86-64
my $at = syscall(9, 0, 4096, 1, 1, fileno($f), $page);
die "mmap: $!\n" if $at == -1;
# Read a byte, so that the page table has an entry.
my $touched = unpack 'P1', pack 'Q', $at;
open my $map, '<:raw', '/proc/self/pagemap' or die "pagemap: $!\n";
sysseek $map, $at / 4096 * 8, 0;
sysread $map, my $entry, 8;
my $frame = unpack('Q', $entry) & ((1 << 55) - 1);
die "no page frame number\n" if $frame == 0;
print $frame * 4096 + $offset % 4096, "\n";
