<?xml version="1.0" encoding="utf-8"?>
<xsl:stylesheet xmlns:xsl="http://www.w3.org/1999/XSL/Transform" version="1.0">
<xsl:import href="http://docbook.sourceforge.net/release/xsl/current/xhtml-1_1/docbook.xsl"/>
<xsl:include href="elsewhere.xsl"/>

<!-- One file, and the same bytes from the same source -->
<xsl:param name="generate.consistent.ids">1</xsl:param>
<xsl:param name="generate.toc">book toc</xsl:param>
<xsl:param name="section.autolabel">0</xsl:param>
<xsl:param name="toc.section.depth">3</xsl:param>
<xsl:param name="variablelist.term.break.after">1</xsl:param>
<xsl:param name="variablelist.term.separator"/>

</xsl:stylesheet>
